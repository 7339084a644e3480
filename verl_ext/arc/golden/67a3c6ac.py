def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input.
    - Each row of the output is the same row of the input, read from right to left.
    Procedure:
    1. Go through the rows from top to bottom.
    2. Reverse each row.
    """
    result = [row[::-1] for row in input_grid]
    return result
