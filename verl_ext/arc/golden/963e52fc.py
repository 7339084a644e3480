def solve(input_grid):
    """
    Observations:
    - The input has a horizontal pattern that repeats from left to right.
    - The output has the same height and twice the width.
    - It continues the pattern to the right.
    Procedure:
    1. Find the shortest period: the smallest shift to the right after which all rows are unchanged.
    2. Fill twice the width by repeating the cells of one period.
    """
    width = len(input_grid[0])
    period = 1
    while any(row[period:] != row[: width - period] for row in input_grid):
        period += 1
    result = []
    for row in input_grid:
        result.append([row[col % period] for col in range(2 * width)])
    return result
