def solve(input_grid):
    """
    Observations:
    - The input has rectangular frames of one colour, and cells of another colour lie in them and around them.
    - The frame with the most of these cells in it matters.
    - The output is this frame with its inside, and the frame has the colour of the cells.
    Procedure:
    1. Two colours: the one of the frames has more cells.
    2. From each cell of a frame walk through it, and find its bounding box.
    3. Count the other cells in each box, cut out the one with the most, and write the other colour on the frame.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    counts = {}
    for row in input_grid:
        for cell in row:
            if cell:
                counts[cell] = counts.get(cell, 0) + 1
    frame = max(counts, key=lambda colour: counts[colour])
    point = min(counts, key=lambda colour: counts[colour])
    seen = set()
    best = []
    most = -1
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != frame or (row, col) in seen:
                continue
            seen.add((row, col))
            cells = [(row, col)]
            for r, c in cells:
                for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                    inside = 0 <= y < height and 0 <= x < width
                    if inside and input_grid[y][x] == frame and (y, x) not in seen:
                        seen.add((y, x))
                        cells.append((y, x))
            left = min(c for r, c in cells)
            right = max(c for r, c in cells)
            bottom = max(r for r, c in cells)
            box = [row_cells[left : right + 1] for row_cells in input_grid[row : bottom + 1]]
            number = sum(line.count(point) for line in box)
            if number > most:
                most = number
                best = box
    result = [[point if cell == frame else cell for cell in line] for line in best]
    return result
