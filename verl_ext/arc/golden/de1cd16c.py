def solve(input_grid):
    """
    Observations:
    - The input consists of a few rectangles of different colours, and single cells of one more colour lie in them.
    - The rectangle with the most of these cells matters.
    - The output is a single cell of its colour.
    Procedure:
    1. The single cells have the colour that is rarest.
    2. For each of them look at its neighbours: the colour of most of them is the rectangle's.
    3. Return the colour that has been found most often.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    counts = {}
    for row in input_grid:
        for cell in row:
            counts[cell] = counts.get(cell, 0) + 1
    rare = min(counts, key=lambda colour: counts[colour])
    found = dict.fromkeys(counts, 0)
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != rare:
                continue
            around = []
            for r in range(max(row - 1, 0), min(row + 2, height)):
                for c in range(max(col - 1, 0), min(col + 2, width)):
                    if (r, c) != (row, col):
                        around.append(input_grid[r][c])
            # A cell at a border has neighbours of two rectangles, but more of its own.
            own = max(set(around), key=lambda colour: around.count(colour))
            found[own] += 1
    most = max(found, key=lambda colour: found[colour])
    result = [[most]]
    return result
