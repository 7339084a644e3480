def solve(input_grid):
    """
    Observations:
    - A large corner in one colour surrounds an object in another colour on two or three sides.
    - In the output diagonal lines begin at the corners of the surrounding shape and lead away from it.
    - They have the colour of the object inside, and end at the edge of the grid.
    Procedure:
    1. Find the two colours: the surrounding shape has the larger bounding box.
    2. For each corner of its bounding box go diagonally outwards.
    3. Write the colour of the inner object until the grid ends.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                places.setdefault(cell, []).append((r, c))
    boxes = {}
    for colour, found in places.items():
        rows = [r for r, c in found]
        cols = [c for r, c in found]
        boxes[colour] = (min(rows), min(cols), max(rows), max(cols))
    areas = {colour: (box[2] - box[0] + 1) * (box[3] - box[1] + 1) for colour, box in boxes.items()}
    outer = max(areas, key=lambda colour: areas[colour])
    inner = next(colour for colour in boxes if colour != outer)
    top, left, bottom, right = boxes[outer]
    result = [list(row) for row in input_grid]
    corners = ((top, left, -1, -1), (top, right, -1, 1), (bottom, left, 1, -1), (bottom, right, 1, 1))
    for row, col, down, sideways in corners:
        r = row + down
        c = col + sideways
        while 0 <= r < height and 0 <= c < width:
            if result[r][c] == 0:
                result[r][c] = inner
            r += down
            c += sideways
    return result
