def solve(input_grid):
    """
    Observations:
    - The input has a shape of 8 and single cells of colour 4.
    - The output is 3 cells high: it has the shape as many times side by side as there are 4.
    - The shape stands in a 3 by 3 square.
    Procedure:
    1. Count the 4.
    2. Cut the shape out; an empty row above it and an empty column before it make it 3 by 3 if it is smaller.
    3. Repeat its rows so many times.
    """
    count = sum(row.count(4) for row in input_grid)
    eights = [(r, c) for r, row in enumerate(input_grid) for c, cell in enumerate(row) if cell == 8]
    bottom = max(r for r, c in eights)
    left = min(c for r, c in eights)
    right = max(c for r, c in eights)
    top = min(r for r, c in eights)
    shape = []
    for row in input_grid[top : bottom + 1]:
        cells = [8 if cell == 8 else 0 for cell in row[left : right + 1]]
        shape.append([0] * (3 - len(cells)) + cells)
    while len(shape) < 3:
        shape.insert(0, [0] * 3)
    result = [row * count for row in shape]
    return result
