def solve(input_grid):
    """
    Observations:
    - On a ground of one colour each other colour has four cells.
    - The four cells of a colour are placed around a common centre.
    - The output is as large as the largest of these arrangements, and all have the same centre in it.
    Procedure:
    1. The ground is the most frequent colour.
    2. Find the bounding box of each other colour.
    3. Make a grid of ground as large as the largest box, and write each colour in its middle.
    """
    counts = {}
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            counts[cell] = counts.get(cell, 0) + 1
            places.setdefault(cell, []).append((r, c))
    ground = max(counts, key=lambda colour: counts[colour])
    del places[ground]
    boxes = {}
    for colour, found in places.items():
        rows = [r for r, c in found]
        cols = [c for r, c in found]
        boxes[colour] = (min(rows), min(cols), max(rows) - min(rows) + 1, max(cols) - min(cols) + 1)
    height = max(box[2] for box in boxes.values())
    width = max(box[3] for box in boxes.values())
    result = [[ground] * width for _ in range(height)]
    for colour, found in places.items():
        top, left, rows, cols = boxes[colour]
        # Half of what is missing lies on either side.
        down = (height - rows) // 2
        right = (width - cols) // 2
        for r, c in found:
            result[r - top + down][c - left + right] = colour
    return result
