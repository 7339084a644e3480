def solve(input_grid):
    """
    Observations:
    - The output is twice as wide and twice as high as the input.
    - Its lower right quarter is the input.
    - It is its own mirror image, sideways and upside down.
    Procedure:
    1. Make the right half: the rows in reverse order above the rows.
    2. Put the reverse of each of these rows before it.
    """
    right = [list(row) for row in reversed(input_grid)]
    for row in input_grid:
        right.append(list(row))
    result = []
    for row in right:
        result.append(row[::-1] + row)
    return result
