def solve(input_grid):
    """
    Observations:
    - The output is twice as tall and twice as wide as the input.
    - Its top left quarter is the input.
    - The right half mirrors the left half, and the lower half mirrors the upper half.
    Procedure:
    1. Append to each row the same row reversed.
    2. Append all these rows once more in reverse order.
    """
    upper = [row + row[::-1] for row in input_grid]
    lower = [list(row) for row in upper[::-1]]
    result = upper + lower
    return result
