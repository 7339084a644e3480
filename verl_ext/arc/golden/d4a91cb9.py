def solve(input_grid):
    """
    Observations:
    - The input has one cell of colour 8 and one of colour 2.
    - In the output a path of 4 joins them.
    - It leaves the 8 up or down, as far as the row of the 2, and then goes sideways to it.
    Procedure:
    1. Find both cells.
    2. Write 4 in the column of the 8, from next to it to the row of the 2.
    3. Write 4 in this row, from there to next to the 2.
    """
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                places[cell] = (r, c)
    row, col = places[8]
    target_row, target_col = places[2]
    down = 1 if target_row > row else -1
    right = 1 if target_col > col else -1
    result = [list(line) for line in input_grid]
    r = row
    while r != target_row:
        r += down
        result[r][col] = 4
    c = col
    while c + right != target_col:
        c += right
        result[target_row][c] = 4
    return result
