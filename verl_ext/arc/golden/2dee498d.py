def solve(input_grid):
    """
    Observations:
    - The width of the input is three times the width of the output; the height is the same.
    - The output is the left third of the input.
    Procedure:
    1. Divide the width by three.
    2. Keep that many cells of each row, from the left.
    """
    third = len(input_grid[0]) // 3
    result = [row[:third] for row in input_grid]
    return result
