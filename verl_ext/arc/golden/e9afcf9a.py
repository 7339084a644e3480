def solve(input_grid):
    """
    Observations:
    - The input has two rows, each of one colour.
    - The output has the same size, and its columns alternate.
    - Columns at even positions are as in the input.
    - Columns at odd positions have the two colours exchanged.
    Procedure:
    1. Read the colour of the upper and of the lower row.
    2. Go through the columns: at even positions keep the order, at odd positions swap it.
    """
    width = len(input_grid[0])
    first = input_grid[0][0]
    second = input_grid[1][0]
    upper = []
    lower = []
    for col in range(width):
        if col % 2 == 0:
            upper.append(first)
            lower.append(second)
        else:
            upper.append(second)
            lower.append(first)
    result = [upper, lower]
    return result
