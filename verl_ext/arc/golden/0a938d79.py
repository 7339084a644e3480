def solve(input_grid):
    """
    Observations:
    - The input has two cells of different colours in a long grid.
    - In the output each of them is drawn out to a line across the short side of the grid.
    - The two lines repeat along the long side until the end, in turn and always at the same distance.
    Procedure:
    1. If the grid is higher than wide, exchange rows and columns.
    2. Find the columns of the two cells; their difference is the distance of the lines.
    3. From the first column on, go to the right by this distance, and note the two colours in turn.
    4. Write the noted colours in every row, and exchange rows and columns again if needed.
    """
    grid = [list(row) for row in input_grid]
    high = len(grid) > len(grid[0])
    if high:
        grid = [list(column) for column in zip(*grid)]
    width = len(grid[0])
    found = []
    for c in range(width):
        for row in grid:
            if row[c] != 0:
                found.append((c, row[c]))
    (first, first_color), (second, second_color) = found
    line = [0] * width
    colors = [first_color, second_color]
    for k, c in enumerate(range(first, width, second - first)):
        line[c] = colors[k % 2]
    result = [list(line) for _ in grid]
    if high:
        result = [list(column) for column in zip(*result)]
    return result
