def solve(input_grid):
    """
    Observations:
    - The input has two shapes in different colours that do not touch.
    - Without being turned they fit together and fill a 3 by 3 square.
    - The output is this square.
    Procedure:
    1. Collect the cells of each shape, relative to the upper left corner of its bounding box.
    2. Try all places of both shapes in the square.
    3. Take the one where they do not overlap and fill all nine cells.
    """
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                places.setdefault(cell, []).append((r, c))
    shapes = []
    for colour, found in places.items():
        top = min(r for r, c in found)
        left = min(c for r, c in found)
        shapes.append((colour, [(r - top, c - left) for r, c in found]))
    shifts = [(r, c) for r in range(3) for c in range(3)]
    result = [[0] * 3 for _ in range(3)]
    (first, first_cells), (second, second_cells) = shapes
    for down, right in shifts:
        for lower, further in shifts:
            one = {(r + down, c + right) for r, c in first_cells}
            two = {(r + lower, c + further) for r, c in second_cells}
            # Nine different cells in the square: nothing overlaps and nothing is left empty.
            if one | two == set(shifts) and not one & two:
                for r, c in shifts:
                    result[r][c] = first if (r, c) in one else second
    return result
