def solve(input_grid):
    """
    Observations:
    - On a ground of one colour the input has a rectangle and single cells of another colour.
    - In the output each single cell in a row or a column of the rectangle is joined to it by a line.
    - The line has the colour of the cell; the other cells stay alone.
    Procedure:
    1. The ground is the most frequent colour, the rectangle the second one.
    2. Find the rows and columns of the rectangle.
    3. From each single cell in one of them fill the way to the nearest side.
    """
    counts = {}
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            counts[cell] = counts.get(cell, 0) + 1
            places.setdefault(cell, []).append((r, c))
    order = sorted(counts, key=lambda colour: -counts[colour])
    block = order[1]
    top = min(r for r, c in places[block])
    bottom = max(r for r, c in places[block])
    left = min(c for r, c in places[block])
    right = max(c for r, c in places[block])
    result = [list(row) for row in input_grid]
    for colour in order[2:]:
        for row, col in places[colour]:
            if top <= row <= bottom:
                way = range(right + 1, col) if col > right else range(col + 1, left)
                for c in way:
                    result[row][c] = colour
            elif left <= col <= right:
                way = range(bottom + 1, row) if row > bottom else range(row + 1, top)
                for r in way:
                    result[r][col] = colour
    return result
