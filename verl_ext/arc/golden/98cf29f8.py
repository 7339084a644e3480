def solve(input_grid):
    """
    Observations:
    - The input has two filled rectangles; a line in the colour of one of them leads from it to the other.
    - In the output the line is gone.
    - Its rectangle has moved along it until it touches the other one.
    Procedure:
    1. The colour whose bounding box is not full has the line.
    2. Its rectangle consists of the cells that are part of a 2 by 2 square of the colour.
    3. Move it toward the other rectangle, step by step, until the next step would meet it.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    places = {}
    for r in range(height):
        for c in range(width):
            if input_grid[r][c]:
                places.setdefault(input_grid[r][c], []).append((r, c))
    moving = 0
    for colour, found in places.items():
        rows = [r for r, c in found]
        cols = [c for r, c in found]
        size = (max(rows) - min(rows) + 1) * (max(cols) - min(cols) + 1)
        if size > len(found):
            moving = colour
    fixed = next(colour for colour in places if colour != moving)
    block = set()
    for r, c in places[moving]:
        square = {(r, c), (r, c + 1), (r + 1, c), (r + 1, c + 1)}
        if square <= set(places[moving]):
            block |= square
    line = [place for place in places[moving] if place not in block]
    # The line lies on the side of the block to which it moves.
    row, col = line[0]
    down = (row > max(r for r, c in block)) - (row < min(r for r, c in block))
    right = (col > max(c for r, c in block)) - (col < min(c for r, c in block))
    while not {(r + down, c + right) for r, c in block} & set(places[fixed]):
        block = {(r + down, c + right) for r, c in block}
    result = [[0] * width for _ in range(height)]
    for r, c in places[fixed]:
        result[r][c] = fixed
    for r, c in block:
        result[r][c] = moving
    return result
