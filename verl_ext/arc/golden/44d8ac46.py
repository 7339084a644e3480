def solve(input_grid):
    """
    Observations:
    - The input has blocks of colour 5, most of them with a hole of 0.
    - A hole that is a square is filled with 2.
    - Holes of other shapes are unchanged.
    Procedure:
    1. Walk from each 0 that is not yet seen through all cells of 0 that touch it at a side: an area.
    2. Find the first and the last row and column of the area.
    3. If it is as high as wide and has as many cells as such a square, write 2 in it.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    free = {(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 0}
    result = [list(row) for row in input_grid]
    while free:
        area = [free.pop()]
        for r, c in area:
            for cell in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                if cell in free:
                    free.remove(cell)
                    area.append(cell)
        rows = [r for r, c in area]
        cols = [c for r, c in area]
        high = max(rows) - min(rows) + 1
        wide = max(cols) - min(cols) + 1
        # The ground around the blocks is never a full square.
        if high == wide and len(area) == high * wide:
            for r, c in area:
                result[r][c] = 2
    return result
