def solve(input_grid):
    """
    Observations:
    - Lines of one colour cut the grid into panels of 0; the lines have gaps of one cell.
    - A panel that lines close on all four sides becomes 3; the panels are squares of the same size.
    - Panels that are joined with another one by a gap become 4, and so do the gaps.
    - The lines stay.
    Procedure:
    1. Find the side of a panel: the shortest stretch of at least two cells of 0 at the start of a row.
    2. Walk from each 0 that is not yet seen through all cells of 0 that touch it at a side.
    3. If the area has as many cells as one panel, write 3 in it, otherwise 4.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    size = width
    for row in input_grid:
        length = 0
        while length < width and row[length] == 0:
            length += 1
        if length > 1:
            size = min(size, length)
    free = {(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 0}
    result = [list(row) for row in input_grid]
    while free:
        area = [free.pop()]
        for r, c in area:
            for cell in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                if cell in free:
                    free.remove(cell)
                    area.append(cell)
        color = 3 if len(area) == size * size else 4
        for r, c in area:
            result[r][c] = color
    return result
