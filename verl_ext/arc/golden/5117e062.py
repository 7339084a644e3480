def solve(input_grid):
    """
    Observations:
    - The input has several shapes of one colour each.
    - One of them has a cell of colour 8.
    - The output is the bounding box of this shape, and the 8 has the colour of the shape.
    Procedure:
    1. Find the 8 and the colour of a neighbour of it.
    2. Find the bounding box of this colour, the 8 included.
    3. Cut it out, and write the colour instead of 8.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    row, col = next((r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 8)
    colour = 0
    for r in range(max(row - 1, 0), min(row + 2, height)):
        for c in range(max(col - 1, 0), min(col + 2, width)):
            if input_grid[r][c] not in (0, 8):
                colour = input_grid[r][c]
    rows = [r for r in range(height) for c in range(width) if input_grid[r][c] in (colour, 8)]
    cols = [c for r in range(height) for c in range(width) if input_grid[r][c] in (colour, 8)]
    result = []
    for r in range(min(rows), max(rows) + 1):
        line = []
        for c in range(min(cols), max(cols) + 1):
            line.append(colour if input_grid[r][c] in (colour, 8) else 0)
        result.append(line)
    return result
