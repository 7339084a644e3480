def solve(input_grid):
    """
    Observations:
    - The upper half of the input is empty.
    - The lower half has a picture.
    - In the output the upper half is its mirror image.
    Procedure:
    1. Take the lower half of the rows.
    2. Put them in reverse order above themselves.
    """
    half = len(input_grid) // 2
    lower = [list(row) for row in input_grid[half:]]
    upper = []
    for row in reversed(lower):
        upper.append(list(row))
    result = upper + lower
    return result
