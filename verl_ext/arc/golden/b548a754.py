def solve(input_grid):
    """
    Observations:
    - The input has a rectangle with a border in one colour and a filling in another, and a single 8.
    - In the output the rectangle has grown toward the 8, so far that its border covers it.
    - Border and filling look as before.
    Procedure:
    1. Find the bounding box of the rectangle and its two colours.
    2. Make the box large enough to hold the 8.
    3. Draw the border along it, and fill its inside.
    """
    cells = []
    spot = (0, 0)
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 8:
                spot = (r, c)
            elif cell:
                cells.append((r, c))
    border_row, border_col = min(cells)
    border = input_grid[border_row][border_col]
    filling = input_grid[border_row + 1][border_col + 1]
    cells.append(spot)
    top = min(r for r, c in cells)
    bottom = max(r for r, c in cells)
    left = min(c for r, c in cells)
    right = max(c for r, c in cells)
    result = [[0] * len(row) for row in input_grid]
    for r in range(top, bottom + 1):
        for c in range(left, right + 1):
            at_border = r in (top, bottom) or c in (left, right)
            result[r][c] = border if at_border else filling
    return result
