def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input, and shows one line of 5 on a ground of 0.
    - With one colour in the input, the line is the top row.
    - With two colours, it is the diagonal from the top left.
    - With three colours, it is the diagonal from the top right.
    Procedure:
    1. Count the colours of the input.
    2. Draw the line that belongs to the count.
    """
    size = len(input_grid)
    count = len({cell for row in input_grid for cell in row})
    result = [[0] * size for _ in range(size)]
    for step in range(size):
        if count == 1:
            result[0][step] = 5
        elif count == 2:
            result[step][step] = 5
        else:
            result[step][size - 1 - step] = 5
    return result
