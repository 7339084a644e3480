def solve(input_grid):
    """
    Observations:
    - The input has two rectangles that face each other, with empty cells between them.
    - In the output the space between them is 8.
    - It is as broad as the part of their sides that faces the other, without its first and last cell.
    Procedure:
    1. Find the bounding boxes of both colours.
    2. If their rows overlap, the space lies between them sideways; otherwise one above the other.
    3. Fill it, without the outermost cells of the overlap.
    """
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                places.setdefault(cell, []).append((r, c))
    boxes = []
    for found in places.values():
        rows = [r for r, c in found]
        cols = [c for r, c in found]
        boxes.append((min(rows), max(rows), min(cols), max(cols)))
    first, second = boxes
    # What both have in common in each direction; empty if the start is behind the end.
    rows = (max(first[0], second[0]), min(first[1], second[1]))
    cols = (max(first[2], second[2]), min(first[3], second[3]))
    if rows[0] <= rows[1]:
        row_range = range(rows[0] + 1, rows[1])
        col_range = range(cols[1] + 1, cols[0])
    else:
        row_range = range(rows[1] + 1, rows[0])
        col_range = range(cols[0] + 1, cols[1])
    result = [list(row) for row in input_grid]
    for r in row_range:
        for c in col_range:
            result[r][c] = 8
    return result
