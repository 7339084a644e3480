def solve(input_grid):
    """
    Observations:
    - The input has one small object on a ground of 0.
    - The output is the smallest rectangle around the object, twice, side by side.
    Procedure:
    1. Find the rows and the columns that have a coloured cell.
    2. Cut the rectangle out.
    3. Write each of its rows twice, one copy right after the other.
    """
    rows = [r for r, row in enumerate(input_grid) if any(row)]
    cols = [c for c, col in enumerate(zip(*input_grid)) if any(col)]
    result = []
    for row in input_grid[rows[0] : rows[-1] + 1]:
        part = row[cols[0] : cols[-1] + 1]
        result.append(part + part)
    return result
