def solve(input_grid):
    """
    Observations:
    - A band of colour 5 runs across the whole grid, level or upright.
    - On both sides of it there are single cells of another colour.
    - Each of them moves straight to the band and becomes 5; several in one line pile up there.
    - The band itself is unchanged.
    Procedure:
    1. If the band is upright, exchange rows and columns, so that it is level.
    2. Find the first and the last row of the band.
    3. In each column, count the coloured cells above the band, and write that many 5 from the band upwards.
    4. Do the same below the band, downwards.
    5. Exchange rows and columns again if the band was upright.
    """
    grid = [list(row) for row in input_grid]
    upright = not any(set(row) == {5} for row in grid)
    if upright:
        grid = [list(column) for column in zip(*grid)]
    band = [r for r, row in enumerate(grid) if set(row) == {5}]
    top, bottom = band[0], band[-1]
    result = []
    for r, row in enumerate(grid):
        result.append(list(row) if r in band else [0] * len(row))
    for c in range(len(grid[0])):
        above = sum(1 for row in grid[:top] if row[c] != 0)
        below = sum(1 for row in grid[bottom + 1 :] if row[c] != 0)
        for k in range(above):
            result[top - 1 - k][c] = 5
        for k in range(below):
            result[bottom + 1 + k][c] = 5
    if upright:
        result = [list(column) for column in zip(*result)]
    return result
