def solve(input_grid):
    """
    Observations:
    - The input is a long grid of 1 and 0.
    - The largest rectangle of empty cells that is at least two cells high and wide becomes 6.
    - Everything else stays.
    Procedure:
    1. Go through all rectangles of at least 2 by 2 cells.
    2. Keep the largest one that is empty throughout.
    3. Fill it with 6.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    best = (0, 0, 0, 0, 0)
    for top in range(height):
        for left in range(width):
            # A rectangle can only become narrower as rows are added.
            reach = width
            for bottom in range(top, height):
                end = left
                while end < reach and input_grid[bottom][end] == 0:
                    end += 1
                reach = end
                rows = bottom - top + 1
                cols = reach - left
                if rows > 1 and cols > 1 and rows * cols > best[0]:
                    best = (rows * cols, top, left, bottom, reach)
    top, left, bottom, end = best[1:]
    result = [list(row) for row in input_grid]
    for r in range(top, bottom + 1):
        for c in range(left, end):
            result[r][c] = 6
    return result
