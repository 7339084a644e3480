def solve(input_grid):
    """
    Observations:
    - The lowest row has some cells of colour 2, and single cells of 5 stand above it.
    - In the output a line of 2 grows upwards from each 2.
    - Where a 5 is in its way it steps one column to the right and goes on upwards.
    Procedure:
    1. Start at each 2 of the lowest row.
    2. If the cell above is 5, go one cell to the right first.
    3. Then go up, and write 2 wherever the line passes, until the top row is reached.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for start in range(width):
        if input_grid[-1][start] != 2:
            continue
        r = height - 1
        c = start
        while r > 0:
            if input_grid[r - 1][c] == 5:
                c += 1
                result[r][c] = 2
            else:
                r -= 1
                result[r][c] = 2
    return result
