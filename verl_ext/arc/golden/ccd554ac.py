def solve(input_grid):
    """
    Observations:
    - The input is a square.
    - The output repeats it as many times as it has rows, in both directions.
    Procedure:
    1. Take the number of rows.
    2. Repeat each row so many times, and all rows so many times.
    """
    count = len(input_grid)
    result = []
    for _ in range(count):
        for row in input_grid:
            result.append(list(row) * count)
    return result
