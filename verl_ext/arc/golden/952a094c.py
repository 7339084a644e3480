def solve(input_grid):
    """
    Observations:
    - The input has a frame with a coloured cell in each corner of its inside.
    - In the output the inside is empty.
    - Each of the four cells is outside now, diagonally beyond the opposite corner of the frame.
    Procedure:
    1. Find the frame: the colour that has most cells.
    2. Its inside begins one row and one column after its first ones.
    3. Move each inner corner to the place beyond the opposite corner of the frame.
    """
    counts = {}
    for row in input_grid:
        for cell in row:
            if cell:
                counts[cell] = counts.get(cell, 0) + 1
    frame = max(counts, key=lambda colour: counts[colour])
    cells = [(r, c) for r, row in enumerate(input_grid) for c, cell in enumerate(row) if cell == frame]
    top = min(r for r, c in cells)
    bottom = max(r for r, c in cells)
    left = min(c for r, c in cells)
    right = max(c for r, c in cells)
    result = [list(row) for row in input_grid]
    moves = (
        (top + 1, left + 1, bottom + 1, right + 1),
        (top + 1, right - 1, bottom + 1, left - 1),
        (bottom - 1, left + 1, top - 1, right + 1),
        (bottom - 1, right - 1, top - 1, left - 1),
    )
    for r, c, y, x in moves:
        result[r][c] = 0
        result[y][x] = input_grid[r][c]
    return result
