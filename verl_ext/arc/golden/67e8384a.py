def solve(input_grid):
    """
    Observations:
    - The output is twice as wide and twice as high as the input.
    - Its upper left quarter is the input.
    - It is its own mirror image, both sideways and upside down.
    Procedure:
    1. Put each row before its reverse.
    2. Below these rows put the same rows in reverse order.
    """
    upper = []
    for row in input_grid:
        upper.append(list(row) + list(reversed(row)))
    lower = [list(row) for row in reversed(upper)]
    result = upper + lower
    return result
