def solve(input_grid):
    """
    Observations:
    - The input is a net of lines in several colours.
    - One small square frame has a colour that occurs nowhere else.
    - The output is this frame with what is inside it.
    Procedure:
    1. Count the cells of each colour and find the rarest.
    2. Find the bounding box of its cells.
    3. Cut it out.
    """
    counts = {}
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            counts[cell] = counts.get(cell, 0) + 1
            places.setdefault(cell, []).append((r, c))
    rare = min(counts, key=lambda colour: counts[colour])
    top = min(r for r, c in places[rare])
    bottom = max(r for r, c in places[rare])
    left = min(c for r, c in places[rare])
    right = max(c for r, c in places[rare])
    result = []
    for row in input_grid[top : bottom + 1]:
        result.append(list(row[left : right + 1]))
    return result
