def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input.
    - The output is the input turned by half a turn: the last row comes first, and each row is read backwards.
    - Colours do not change.
    Procedure:
    1. Take the rows from the last to the first.
    2. Reverse each of them.
    """
    result = []
    for row in reversed(input_grid):
        result.append(row[::-1])
    return result
