def solve(input_grid):
    """
    Observations:
    - A shape of 4 in the lower half points to the left or to the right: its top row has a cell on one side only.
    - Above it is a 3 by 3 picture of 8.
    - In the output the mirror image of the picture stands beside it on that side.
    Procedure:
    1. Find the columns of the shape of 4 and the cell of its top row.
    2. If the cell is in the left column, mirror the picture to the left, otherwise to the right.
    3. Copy the mirror image beside the picture.
    """
    width = len(input_grid[0])
    arrow_rows = [r for r, row in enumerate(input_grid) if 4 in row]
    arrow_cols = [c for c in range(width) if any(row[c] == 4 for row in input_grid)]
    head = input_grid[arrow_rows[0]].index(4)
    cols = [c for c in range(width) if any(row[c] == 8 for row in input_grid)]
    first = min(cols)
    last = max(cols)
    points_left = head == min(arrow_cols)
    result = [list(row) for row in input_grid]
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell != 8:
                continue
            # The mirror is the side of the picture that the arrow points to.
            if points_left:
                result[r][2 * first - 1 - c] = 8
            else:
                result[r][2 * last + 1 - c] = 8
    return result
