def solve(input_grid):
    """
    Observations:
    - The input has a single coloured cell on a ground of 0.
    - In the output this cell is one row further down.
    - All rows above its new place have the colour 4 in every second column.
    - These columns include the column of the cell.
    Procedure:
    1. Find the cell and its colour.
    2. From the first row to the old row of the cell, write 4 in each column at an even distance from it.
    3. Write the colour of the cell one row below its old place.
    """
    width = len(input_grid[0])
    result = [[0] * width for _ in input_grid]
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell != 0:
                for y in range(r + 1):
                    for x in range(c % 2, width, 2):
                        result[y][x] = 4
                result[r + 1][c] = cell
    return result
