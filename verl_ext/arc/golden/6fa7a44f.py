def solve(input_grid):
    """
    Observations:
    - The output has the width of the input and twice its height.
    - The upper half is the input.
    - The lower half is the input with its rows in reverse order.
    Procedure:
    1. Copy all rows from top to bottom.
    2. Copy all rows again from bottom to top, below the first copy.
    """
    result = [list(row) for row in input_grid]
    for row in reversed(input_grid):
        result.append(list(row))
    return result
