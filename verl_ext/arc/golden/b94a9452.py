def solve(input_grid):
    """
    Observations:
    - The input has one square object in two colours on a ground of 0.
    - The output is this square with its two colours exchanged.
    Procedure:
    1. Cut out the smallest rectangle around the coloured cells.
    2. Find its two colours.
    3. Replace each colour by the other one; their sum minus the cell gives the other colour.
    """
    rows = [r for r, row in enumerate(input_grid) if any(row)]
    cols = [c for c, col in enumerate(zip(*input_grid)) if any(col)]
    square = [row[cols[0] : cols[-1] + 1] for row in input_grid[rows[0] : rows[-1] + 1]]
    total = sum({cell for row in square for cell in row})
    result = [[total - cell for cell in row] for row in square]
    return result
