def solve(input_grid):
    """
    Observations:
    - The input has single cells of colour 1.
    - In the output each has four neighbours: 2 above, 7 to the left, 6 to the right, 8 below.
    - What lies outside the grid is left out.
    Procedure:
    1. Go through all cells of colour 1.
    2. Write the four numbers at the neighbours that are in the grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for r in range(height):
        for c in range(width):
            if input_grid[r][c] != 1:
                continue
            neighbours = ((2, r - 1, c), (7, r, c - 1), (6, r, c + 1), (8, r + 1, c))
            for number, y, x in neighbours:
                inside = 0 <= y < height and 0 <= x < width
                if inside and input_grid[y][x] != 1:
                    result[y][x] = number
    return result
