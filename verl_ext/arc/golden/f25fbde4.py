def solve(input_grid):
    """
    Observations:
    - The input has one object of colour 4 on a ground of 0.
    - The output is the smallest rectangle around it, enlarged by two.
    - So each cell of the rectangle is a block of 2 by 2 cells.
    Procedure:
    1. Find the rows and the columns that have a coloured cell, and cut the rectangle out.
    2. Write each cell twice in its row, and each row twice.
    """
    rows = [r for r, row in enumerate(input_grid) if any(row)]
    cols = [c for c, col in enumerate(zip(*input_grid)) if any(col)]
    result = []
    for row in input_grid[rows[0] : rows[-1] + 1]:
        part = row[cols[0] : cols[-1] + 1]
        wide = [cell for cell in part for _ in range(2)]
        result.append(wide)
        result.append(list(wide))
    return result
