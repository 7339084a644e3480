def solve(input_grid):
    """
    Observations:
    - The input has a shape of 3 and a line of 2 that goes across the whole grid.
    - In the output the shape has moved to the line until it touches it.
    - A line of 8 stands at the other side of the shape, directly behind it.
    Procedure:
    1. If the line is horizontal, turn the question by swapping rows and columns.
    2. Find the columns of the shape and of the line.
    3. Move the shape so that it ends beside the line, and write the line of 8 behind its other end.
    4. Swap rows and columns back.
    """
    grid = [list(row) for row in input_grid]
    lies = any(set(row) == {2} for row in grid)
    if lies:
        grid = [list(column) for column in zip(*grid)]
    width = len(grid[0])
    line = next(c for c in range(width) if all(row[c] == 2 for row in grid))
    cols = [c for c in range(width) if any(row[c] == 3 for row in grid)]
    if line > cols[-1]:
        shift = line - 1 - cols[-1]
        behind = cols[0] + shift - 1
    else:
        shift = line + 1 - cols[0]
        behind = cols[-1] + shift + 1
    result = []
    for row in grid:
        cells = [0] * width
        cells[line] = 2
        cells[behind] = 8
        for c in cols:
            if row[c] == 3:
                cells[c + shift] = 3
        result.append(cells)
    if lies:
        result = [list(column) for column in zip(*result)]
    return result
