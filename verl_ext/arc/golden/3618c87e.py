def solve(input_grid):
    """
    Observations:
    - The lowest row is 5 throughout, and some 5 stand on it, each with a 1 on top.
    - In the output the 1 has fallen to the lowest row.
    - The 5 below it stays where it was.
    Procedure:
    1. Copy the grid.
    2. Clear each cell of colour 1.
    3. Write 1 at the foot of its column.
    """
    result = [list(row) for row in input_grid]
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 1:
                result[r][c] = 0
                result[-1][c] = 1
    return result
