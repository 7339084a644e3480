def solve(input_grid):
    """
    Observations:
    - Four cells of colour 3 are the corners of a rectangle.
    - A shape of 2 is as large as the inside of the rectangle, but it lies beside its place.
    - In the output the shape has moved into the rectangle.
    Procedure:
    1. Find the upper left corner of the rectangle and the bounding box of the shape.
    2. The shape begins one row and one column after the corner.
    3. Move it there.
    """
    threes = []
    twos = []
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 3:
                threes.append((r, c))
            elif cell == 2:
                twos.append((r, c))
    down = min(r for r, c in threes) + 1 - min(r for r, c in twos)
    right = min(c for r, c in threes) + 1 - min(c for r, c in twos)
    result = [[0] * len(row) for row in input_grid]
    for r, c in threes:
        result[r][c] = 3
    for r, c in twos:
        result[r + down][c + right] = 2
    return result
