def solve(input_grid):
    """
    Observations:
    - Four cells of two colours are the corners of a rectangle; opposite corners have the same colour.
    - In the output each of them is surrounded by a ring of the other colour.
    - Dotted lines of 5 join neighbouring corners along the sides of the rectangle.
    - The dots are at every second cell, counted from both corners up to the middle of the side.
    Procedure:
    1. Collect the coloured cells, and find the two colours.
    2. Write the ring of the other colour around each cell.
    3. For each pair of a cell and another one in the same row, go from the first one towards the other by two cells.
    4. Write 5 there, and repeat it until the middle. Do the same for pairs in the same column.
    """
    corners = []
    for r, row in enumerate(input_grid):
        for c, color in enumerate(row):
            if color != 0:
                corners.append((r, c))
    colors = {input_grid[r][c] for r, c in corners}
    result = [list(row) for row in input_grid]
    for row, col in corners:
        color = input_grid[row][col]
        (other,) = colors - {color}
        for r in range(row - 1, row + 2):
            for c in range(col - 1, col + 2):
                result[r][c] = other
        result[row][col] = color
        for to_row, to_col in corners:
            # Only one of the two differences is not 0 for neighbouring corners.
            down, over = to_row - row, to_col - col
            if (down == 0) == (over == 0):
                continue
            length = abs(down + over)
            for k in range(2, length // 2 + 1, 2):
                result[row + k * down // length][col + k * over // length] = 5
    return result
