def solve(input_grid):
    """
    Observations:
    - The input has some colours and no empty cell.
    - The output repeats it in both directions, as many times as it has colours.
    Procedure:
    1. Count the colours.
    2. Repeat each row so many times, and all rows so many times.
    """
    colours = {cell for row in input_grid for cell in row}
    count = len(colours)
    result = []
    for _ in range(count):
        for row in input_grid:
            result.append(list(row) * count)
    return result
