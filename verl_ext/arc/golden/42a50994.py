def solve(input_grid):
    """
    Observations:
    - The input has cells of one colour on 0: some are single, others touch each other at a side or at a corner.
    - In the output the single cells are gone.
    - All cells that touch another coloured cell are unchanged.
    Procedure:
    1. Copy the grid.
    2. For each coloured cell, count the coloured cells in the 3 by 3 cells around it, itself included.
    3. If there is only one, write 0.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] == 0:
                continue
            count = 0
            for r in range(max(row - 1, 0), min(row + 2, height)):
                for c in range(max(col - 1, 0), min(col + 2, width)):
                    if input_grid[r][c] != 0:
                        count += 1
            if count == 1:
                result[row][col] = 0
    return result
