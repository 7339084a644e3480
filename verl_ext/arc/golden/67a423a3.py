def solve(input_grid):
    """
    Observations:
    - The input has one horizontal line and one vertical line in two colours, which cross.
    - In the output the eight cells around the crossing are 4.
    - The crossing itself and all other cells are unchanged.
    Procedure:
    1. The row of the horizontal line has no 0, and the column of the vertical line has no 0.
    2. Write 4 in the 3 by 3 cells around the crossing.
    3. Put the colour of the crossing back.
    """
    result = [list(row) for row in input_grid]
    for r, row in enumerate(input_grid):
        if 0 not in row:
            line_row = r
    for c, col in enumerate(zip(*input_grid)):
        if 0 not in col:
            line_col = c
    for r in range(line_row - 1, line_row + 2):
        for c in range(line_col - 1, line_col + 2):
            result[r][c] = 4
    result[line_row][line_col] = input_grid[line_row][line_col]
    return result
