def solve(input_grid):
    """
    Observations:
    - The input has single cells of the colours 1, 2 and 3.
    - In the output each 1 and each 3 has become a line over its whole row.
    - Each 2 has become a line over its whole column, behind the other lines.
    Procedure:
    1. First fill the column of each 2.
    2. Then fill the rows of 1 and 3.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * width for _ in range(height)]
    for row in input_grid:
        for c, cell in enumerate(row):
            if cell == 2:
                for r in range(height):
                    result[r][c] = 2
    for r, row in enumerate(input_grid):
        for cell in row:
            if cell in (1, 3):
                result[r] = [cell] * width
    return result
