def solve(input_grid):
    """
    Observations:
    - The input has 2 by 2 squares of several colours.
    - In the output a bar of 3 hangs below each square, as wide as the square.
    - It has as many rows as the square has different colours.
    Procedure:
    1. Go through the squares: a coloured cell with nothing coloured above it and to its left is the first of one.
    2. Count the different colours of the square.
    3. Write so many rows of 3 directly below it.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height - 1):
        for col in range(width - 1):
            if input_grid[row][col] == 0:
                continue
            has_above = row > 0 and input_grid[row - 1][col] != 0
            has_left = col > 0 and input_grid[row][col - 1] != 0
            if has_above or has_left:
                continue
            colours = set()
            for r in (row, row + 1):
                for c in (col, col + 1):
                    colours.add(input_grid[r][c])
            for r in range(row + 2, min(row + 2 + len(colours), height)):
                result[r][col] = 3
                result[r][col + 1] = 3
    return result
