def solve(input_grid):
    """
    Observations:
    - The input has one cell of colour 3 and one of colour 4.
    - The 3 moves one step toward the 4: sideways, up or down, or diagonally.
    - The 4 stays.
    Procedure:
    1. Find both cells.
    2. The step in rows is -1, 0 or 1, by the sign of the difference of their rows; likewise in columns.
    3. Clear the old place of the 3 and write it one step on.
    """
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                places[cell] = (r, c)
    row, col = places[3]
    target_row, target_col = places[4]
    # The sign of a difference, as a number: -1, 0 or 1.
    down = (target_row > row) - (target_row < row)
    right = (target_col > col) - (target_col < col)
    result = [list(line) for line in input_grid]
    result[row][col] = 0
    result[row + down][col + right] = 3
    return result
