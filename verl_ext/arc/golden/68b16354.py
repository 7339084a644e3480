def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input.
    - The rows themselves are unchanged.
    - Their order is reversed: the grid is mirrored from top to bottom.
    Procedure:
    1. Copy the rows from the last to the first.
    """
    result = [list(row) for row in reversed(input_grid)]
    return result
