def solve(input_grid):
    """
    Observations:
    - A column of 5 divides the input into two squares.
    - The left one is a frame of 1 with empty cells, the right one has a shape in another colour.
    - If the shape fits exactly into the empty cells, it is there in the output.
    - Otherwise the output is the left square.
    Procedure:
    1. Cut out both squares.
    2. Compare the empty places of the left one with the coloured places of the right one.
    3. If they are the same, lay the two squares over each other.
    """
    width = len(input_grid[0])
    line = next(c for c in range(width) if all(row[c] == 5 for row in input_grid))
    left = [list(row[:line]) for row in input_grid]
    right = [list(row[line + 1 :]) for row in input_grid]
    fits = True
    for first, second in zip(left, right):
        for one, other in zip(first, second):
            if (one == 0) != (other != 0):
                fits = False
    result = []
    for first, second in zip(left, right):
        if fits:
            result.append([one or other for one, other in zip(first, second)])
        else:
            result.append(first)
    return result
