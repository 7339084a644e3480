def solve(input_grid):
    """
    Observations:
    - The input is a pattern of colour 1 that repeats downwards.
    - The output has half as many rows again and continues the pattern.
    - All 1 become 2.
    Procedure:
    1. Find the smallest number of rows after which the pattern repeats.
    2. Make one and a half times as many rows, each that of the input at the same place of the period.
    3. Write 2 instead of 1.
    """
    height = len(input_grid)
    period = 1
    while any(input_grid[r] != input_grid[r - period] for r in range(period, height)):
        period += 1
    result = []
    for r in range(height + height // 2):
        row = input_grid[r % period]
        result.append([2 if cell == 1 else cell for cell in row])
    return result
