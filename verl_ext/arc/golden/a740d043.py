def solve(input_grid):
    """
    Observations:
    - The ground of the input is 1, with a few other cells close together.
    - The output is the smallest rectangle around the cells that are not 1.
    - Cells of colour 1 inside this rectangle become 0.
    Procedure:
    1. Find the rows and the columns that have a cell other than 1.
    2. Cut the grid from the first to the last of them.
    3. Replace 1 by 0.
    """
    rows = [r for r, row in enumerate(input_grid) if set(row) != {1}]
    cols = [c for c, col in enumerate(zip(*input_grid)) if set(col) != {1}]
    result = []
    for row in input_grid[rows[0] : rows[-1] + 1]:
        part = row[cols[0] : cols[-1] + 1]
        result.append([0 if cell == 1 else cell for cell in part])
    return result
