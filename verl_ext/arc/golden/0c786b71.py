def solve(input_grid):
    """
    Observations:
    - The output is twice as wide and twice as high as the input.
    - Its lower right quarter is the input.
    - The other quarters are its mirror images at the upper and left side of this quarter.
    Procedure:
    1. Put each row behind its reverse.
    2. Put the same rows in reverse order above them.
    """
    lower = []
    for row in input_grid:
        lower.append(list(reversed(row)) + list(row))
    upper = [list(row) for row in reversed(lower)]
    result = upper + lower
    return result
