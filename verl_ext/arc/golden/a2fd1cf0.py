def solve(input_grid):
    """
    Observations:
    - The input has one cell of colour 2 and one of colour 3.
    - In the output a path of 8 joins them.
    - It leaves the 2 sideways, as far as the column of the 3, and then goes up or down to it.
    Procedure:
    1. Find both cells.
    2. Write 8 in the row of the 2, from next to it to the column of the 3.
    3. Write 8 in this column, from there to next to the 3.
    """
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                places[cell] = (r, c)
    row, col = places[2]
    target_row, target_col = places[3]
    right = 1 if target_col > col else -1
    down = 1 if target_row > row else -1
    result = [list(line) for line in input_grid]
    c = col
    while c != target_col:
        c += right
        result[row][c] = 8
    r = row
    while r + down != target_row:
        r += down
        result[r][target_col] = 8
    # If both are in the same column or row, a step may have reached a cell itself.
    for colour, (r, c) in places.items():
        result[r][c] = colour
    return result
