def solve(input_grid):
    """
    Observations:
    - The output is twice as large as the input.
    - Its upper left quarter is the input, the upper right one the input turned a quarter to the left.
    - The lower left one is turned by a half, the lower right one a quarter to the right.
    Procedure:
    1. Make the three turned grids.
    2. Put two beside each other above the two others.
    """
    plain = [list(row) for row in input_grid]
    # The columns, from the right to the left, are the rows of a grid turned to the left.
    left = [list(column) for column in zip(*plain)][::-1]
    half = [row[::-1] for row in plain[::-1]]
    right = [list(column) for column in zip(*plain[::-1])]
    result = []
    for first, second in zip(plain, left):
        result.append(first + second)
    for first, second in zip(half, right):
        result.append(first + second)
    return result
