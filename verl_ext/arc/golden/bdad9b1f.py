def solve(input_grid):
    """
    Observations:
    - The input has a short horizontal line of 2 and a short vertical line of 8, each at an edge.
    - In the output the row of the 2 is 2 from side to side, and the column of the 8 is 8 from top to bottom.
    - The cell where they cross is 4.
    Procedure:
    1. Find the row with a 2 and the column with an 8.
    2. Fill the column with 8 and the row with 2.
    3. Write 4 at the crossing.
    """
    result = [list(row) for row in input_grid]
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 2:
                line_row = r
            if cell == 8:
                line_col = c
    for row in result:
        row[line_col] = 8
    result[line_row] = [2] * len(input_grid[0])
    result[line_row][line_col] = 4
    return result
