def solve(input_grid):
    """
    Observations:
    - The output is twice as wide and twice as high as the input.
    - Its upper left quarter is the input.
    - The other quarters are its mirror images, so that the output is symmetric in both directions.
    Procedure:
    1. Put each row before its reverse.
    2. Put the same rows in reverse order below them.
    """
    upper = []
    for row in input_grid:
        upper.append(list(row) + list(row)[::-1])
    lower = [list(row) for row in upper[::-1]]
    result = upper + lower
    return result
