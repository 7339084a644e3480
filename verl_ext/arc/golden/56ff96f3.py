def solve(input_grid):
    """
    Observations:
    - The input has pairs of cells, each pair in a colour of its own.
    - In the output each pair has become a filled rectangle.
    - The two cells are opposite corners of it.
    Procedure:
    1. Collect the cells of each colour.
    2. Fill the rectangle from their smallest to their largest row and column.
    """
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                places.setdefault(cell, []).append((r, c))
    result = [list(row) for row in input_grid]
    for colour, found in places.items():
        rows = [r for r, c in found]
        cols = [c for r, c in found]
        for r in range(min(rows), max(rows) + 1):
            for c in range(min(cols), max(cols) + 1):
                result[r][c] = colour
    return result
