def solve(input_grid):
    """
    Observations:
    - The input has pairs of cells in the same colour, each pair in a row or in a column.
    - In the output each pair is joined by a line of its colour.
    - Where lines cross, the vertical one is in front.
    Procedure:
    1. Collect the cells of each colour.
    2. First draw the lines of the pairs in a row.
    3. Then draw the lines of the pairs in a column over them.
    """
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                places.setdefault(cell, []).append((r, c))
    result = [list(row) for row in input_grid]
    for colour, found in places.items():
        first = min(found)
        last = max(found)
        if first[0] == last[0]:
            for c in range(first[1], last[1] + 1):
                result[first[0]][c] = colour
    # What is drawn last is in front.
    for colour, found in places.items():
        first = min(found)
        last = max(found)
        if first[1] == last[1]:
            for r in range(first[0], last[0] + 1):
                result[r][first[1]] = colour
    return result
