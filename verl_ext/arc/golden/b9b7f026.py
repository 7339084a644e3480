def solve(input_grid):
    """
    Observations:
    - The input has filled rectangles in different colours.
    - One of them has a hole: one or more empty cells inside.
    - The output is a single cell of its colour.
    Procedure:
    1. Find the bounding box of each colour.
    2. Only the one with a hole has an empty cell in its box.
    """
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                places.setdefault(cell, []).append((r, c))
    result = [[0]]
    for colour, found in places.items():
        top = min(r for r, c in found)
        bottom = max(r for r, c in found)
        left = min(c for r, c in found)
        right = max(c for r, c in found)
        for row in input_grid[top : bottom + 1]:
            if 0 in row[left : right + 1]:
                result = [[colour]]
    return result
