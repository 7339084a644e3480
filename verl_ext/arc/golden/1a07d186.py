def solve(input_grid):
    """
    Observations:
    - The input has one or more straight lines across the grid, each in its own colour, level or upright.
    - There are single cells too; those with the colour of a line move straight to it.
    - In the output such a cell lies next to the line, on the side from which it came.
    - Single cells of other colours disappear; the lines stay.
    Procedure:
    1. If the lines are upright, exchange rows and columns, so that they are level.
    2. A row of one colour other than 0 is a line; note the row of each colour.
    3. For each coloured cell outside the lines, look for the line of its colour.
    4. If there is one, write the colour above or below this line, in the column of the cell.
    5. Exchange rows and columns again if the lines were upright.
    """
    grid = [list(row) for row in input_grid]
    upright = not any(len(set(row)) == 1 and row[0] != 0 for row in grid)
    if upright:
        grid = [list(column) for column in zip(*grid)]
    width = len(grid[0])
    lines = {}
    for r, row in enumerate(grid):
        if len(set(row)) == 1 and row[0] != 0:
            lines[row[0]] = r
    result = [[0] * width for _ in grid]
    for color, line in lines.items():
        result[line] = [color] * width
        for r, row in enumerate(grid):
            if r == line:
                continue
            place = line - 1 if r < line else line + 1
            for c in range(width):
                if row[c] == color:
                    result[place][c] = color
    if upright:
        result = [list(column) for column in zip(*result)]
    return result
