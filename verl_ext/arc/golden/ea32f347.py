def solve(input_grid):
    """
    Observations:
    - The input has three straight lines of colour 5 with different lengths.
    - In the output the longest line is 1, the middle one is 4, and the shortest one is 2.
    - The places of the lines do not change.
    Procedure:
    1. Collect the cells of each line: start at a 5 and walk to the direct neighbours of colour 5.
    2. Sort the lines by length, the longest first.
    3. Write the colours 1, 4 and 2 in this order.
    """
    places = set()
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 5:
                places.add((r, c))
    lines = []
    while places:
        line = [places.pop()]
        for r, c in line:
            for place in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                if place in places:
                    places.remove(place)
                    line.append(place)
        lines.append(line)
    lines.sort(key=len, reverse=True)
    result = [list(row) for row in input_grid]
    for line, colour in zip(lines, (1, 4, 2)):
        for r, c in line:
            result[r][c] = colour
    return result
