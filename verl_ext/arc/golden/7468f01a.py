def solve(input_grid):
    """
    Observations:
    - The input has one filled rectangle with a pattern inside, on a ground of 0.
    - The output has the size of the rectangle.
    - It is the rectangle mirrored from left to right.
    Procedure:
    1. Find the rows and the columns that have a coloured cell.
    2. Cut the rectangle out.
    3. Reverse each of its rows.
    """
    rows = [r for r, row in enumerate(input_grid) if any(row)]
    cols = [c for c, col in enumerate(zip(*input_grid)) if any(col)]
    result = []
    for row in input_grid[rows[0] : rows[-1] + 1]:
        part = row[cols[0] : cols[-1] + 1]
        result.append(part[::-1])
    return result
