def solve(input_grid):
    """
    Observations:
    - The input has two or more objects of one colour, and a single 5 on top of one of them.
    - The output is 3 by 3: the object that the 5 touches, without the 5.
    - The cells of an object touch at sides or at corners.
    Procedure:
    1. Start at the cell of the 5, and walk to any of the eight cells around that is coloured.
    2. Leave the 5 out; the cells that were reached are the object.
    3. Draw it into an empty grid of 3 by 3, moved to the top left corner.
    """
    places = set()
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell != 0:
                places.add((r, c))
            if cell == 5:
                start = (r, c)
    places.remove(start)
    group = [start]
    for row, col in group:
        for r in range(row - 1, row + 2):
            for c in range(col - 1, col + 2):
                if (r, c) in places:
                    places.remove((r, c))
                    group.append((r, c))
    group.remove(start)
    top = min(r for r, c in group)
    left = min(c for r, c in group)
    result = [[0] * 3 for _ in range(3)]
    for r, c in group:
        result[r - top][c - left] = input_grid[r][c]
    return result
