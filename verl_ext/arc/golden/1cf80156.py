def solve(input_grid):
    """
    Observations:
    - The input has one object on a ground of 0.
    - The output is the smallest rectangle that contains it, unchanged.
    Procedure:
    1. Find the rows and the columns that have a coloured cell.
    2. Cut out the part from the first to the last of them.
    """
    rows = [r for r, row in enumerate(input_grid) if any(row)]
    cols = [c for c, col in enumerate(zip(*input_grid)) if any(col)]
    result = []
    for row in input_grid[rows[0] : rows[-1] + 1]:
        result.append(row[cols[0] : cols[-1] + 1])
    return result
