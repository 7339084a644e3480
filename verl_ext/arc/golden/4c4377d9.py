def solve(input_grid):
    """
    Observations:
    - The output has the width of the input and twice its height.
    - The lower half is the input.
    - The upper half is the input mirrored from top to bottom.
    Procedure:
    1. Copy the rows from the last to the first.
    2. Copy the rows from the first to the last below them.
    """
    upper = [list(row) for row in input_grid[::-1]]
    lower = [list(row) for row in input_grid]
    result = upper + lower
    return result
