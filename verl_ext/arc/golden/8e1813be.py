def solve(input_grid):
    """
    Observations:
    - The input has straight lines of different colours, all level or all upright, and a square of colour 5.
    - The square interrupts some of the lines.
    - The output is a square with one line per line of the input, in the same order and direction.
    Procedure:
    1. Note the colours other than 0 and 5, and the first and the last row and column of each.
    2. The lines are level if the first colour is in one row only.
    3. Sort the colours by row if the lines are level, otherwise by column.
    4. Write one row per colour; for upright lines, write the row of all colours as often as there are lines.
    """
    places = {}
    for r, row in enumerate(input_grid):
        for c, color in enumerate(row):
            if color not in (0, 5):
                places.setdefault(color, []).append((r, c))
    first_line = next(iter(places.values()))
    level = len({r for r, c in first_line}) == 1
    order = []
    for color, cells in places.items():
        r, c = cells[0]
        order.append((r if level else c, color))
    colors = [color for _, color in sorted(order)]
    result = []
    for color in colors:
        if level:
            result.append([color] * len(colors))
        else:
            result.append(list(colors))
    return result
