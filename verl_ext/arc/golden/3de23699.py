def solve(input_grid):
    """
    Observations:
    - Four cells of one colour are the corners of a rectangle.
    - Inside is a picture in another colour.
    - The output is the inside of the rectangle, and the picture has the colour of the corners.
    Procedure:
    1. Find the colour that occurs four times, at the corners of a rectangle.
    2. Cut out what lies inside it.
    3. Write the colour of the corners wherever a cell is not 0.
    """
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                places.setdefault(cell, []).append((r, c))
    corner = 0
    for colour, found in places.items():
        rows = {r for r, c in found}
        cols = {c for r, c in found}
        # Four cells in two rows and two columns are corners, if there is room between them.
        if len(found) == 4 and len(rows) == 2 and len(cols) == 2 and max(rows) - min(rows) > 1:
            corner = colour
    rows = [r for r, c in places[corner]]
    cols = [c for r, c in places[corner]]
    result = []
    for r in range(min(rows) + 1, max(rows)):
        row = input_grid[r][min(cols) + 1 : max(cols)]
        result.append([corner if cell else 0 for cell in row])
    return result
