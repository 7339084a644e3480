def solve(input_grid):
    """
    Observations:
    - The input has two cells of different colours in one row or in one column.
    - In the output a line starts at each of them and goes towards the other one.
    - Both lines end shortly before the middle, with two empty cells between them.
    - The end of each line is the middle of a crossbar of five cells.
    - The ends of the crossbar bend by one cell towards the other side, so that the two crossbars form a ring.
    Procedure:
    1. If the two cells are in one column, exchange rows and columns, so that they are in one row.
    2. Find the last column of the left line and the first column of the right line.
    3. Draw both lines, their crossbars of two more cells up and down, and the bent ends.
    4. Exchange rows and columns again if it was done before.
    """
    grid = [list(row) for row in input_grid]
    in_column = all(sum(color != 0 for color in row) < 2 for row in grid)
    if in_column:
        grid = [list(column) for column in zip(*grid)]
    places = [(r, c) for r, row in enumerate(grid) for c, color in enumerate(row) if color != 0]
    row, first = places[0]
    last = places[1][1]
    left_end = (first + last) // 2 - 1
    right_end = left_end + 3
    result = [list(row) for row in grid]
    for color, line, bend in (
        (grid[row][first], range(first, left_end + 1), left_end + 1),
        (grid[row][last], range(last, right_end - 1, -1), right_end - 1),
    ):
        for c in line:
            result[row][c] = color
        for r in range(row - 2, row + 3):
            result[r][line[-1]] = color
        result[row - 2][bend] = color
        result[row + 2][bend] = color
    if in_column:
        result = [list(column) for column in zip(*result)]
    return result
