def solve(input_grid):
    """
    Observations:
    - The input is one row: some cells of one colour at the left, then only 0.
    - The first row of the output is the input.
    - Each further row has one more coloured cell than the row above it.
    - The output has half as many rows as columns.
    Procedure:
    1. Count the coloured cells, and read their colour.
    2. Write one row after the other, with one more coloured cell each time, until half of the width is reached.
    """
    row = input_grid[0]
    width = len(row)
    colour = row[0]
    count = width - row.count(0)
    result = []
    for step in range(width // 2):
        filled = count + step
        result.append([colour] * filled + [0] * (width - filled))
    return result
