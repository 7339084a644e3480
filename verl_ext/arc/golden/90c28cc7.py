def solve(input_grid):
    """
    Observations:
    - The input has coloured rectangles that touch each other, on a ground of 0.
    - Together they fill one large rectangle.
    - In the output each rectangle shrinks to a cell, so that neighbouring rows and columns differ.
    Procedure:
    1. Cut out the part that is coloured.
    2. Drop each row that equals the row before it.
    3. Drop each column that equals the column before it.
    """
    rows = [r for r, row in enumerate(input_grid) if any(row)]
    cols = [c for c, col in enumerate(zip(*input_grid)) if any(col)]
    grid = [row[cols[0] : cols[-1] + 1] for row in input_grid[rows[0] : rows[-1] + 1]]
    for _ in range(2):
        kept = []
        for row in grid:
            if not kept or row != kept[-1]:
                kept.append(row)
        grid = [list(col) for col in zip(*kept)]
    result = grid
    return result
