def solve(input_grid):
    """
    Observations:
    - Lines of one colour cut the grid into square panels; each panel has a single colour or is 0.
    - The output has one cell per panel.
    - Left and right are exchanged: the last panel of a row comes first.
    Procedure:
    1. Find the rows and the columns that are lines: all their cells have one colour, not 0.
    2. The first panel starts at the edge, and every other one behind a line.
    3. Read the top left cell of each panel.
    4. Write the cells of a row of panels from right to left.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    columns = list(zip(*input_grid))
    tops = [0]
    for r in range(height):
        if len(set(input_grid[r])) == 1 and input_grid[r][0] != 0:
            tops.append(r + 1)
    lefts = [0]
    for c in range(width):
        if len(set(columns[c])) == 1 and columns[c][0] != 0:
            lefts.append(c + 1)
    result = []
    for top in tops:
        row = []
        for left in reversed(lefts):
            row.append(input_grid[top][left])
        result.append(row)
    return result
