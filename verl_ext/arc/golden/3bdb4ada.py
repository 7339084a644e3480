def solve(input_grid):
    """
    Observations:
    - The input has bars that are three rows high.
    - In the output the middle row of each bar has holes.
    - Every second cell of it is empty, beginning with the second one.
    Procedure:
    1. Go through the coloured cells that have their own colour above and below.
    2. Count how far the cell is from the left end of its bar.
    3. If the distance is odd, clear the cell.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for r in range(1, height - 1):
        start = 0
        for c in range(width):
            colour = input_grid[r][c]
            # A bar begins where the colour changes.
            if c == 0 or input_grid[r][c - 1] != colour:
                start = c
            if colour == 0:
                continue
            if input_grid[r - 1][c] != colour or input_grid[r + 1][c] != colour:
                continue
            if (c - start) % 2 == 1:
                result[r][c] = 0
    return result
