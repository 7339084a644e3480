def solve(input_grid):
    """
    Observations:
    - The input has a diagonal cross of five cells of one colour, and a figure of another colour beside it.
    - In the output the figure is there four times, around the cross.
    - The copies are mirror images: up and down, left and right, and both, at the centre of the cross.
    Procedure:
    1. Find the centre of the cross: its four diagonal neighbours have its colour, the cell above it does not.
    2. For each coloured cell, mirror its row, its column, and both at the centre.
    3. Write the colour at these places.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    center_row, center_col = 0, 0
    for r in range(1, height - 1):
        for c in range(1, width - 1):
            color = input_grid[r][c]
            diagonal = {input_grid[y][x] for y in (r - 1, r + 1) for x in (c - 1, c + 1)}
            if color != 0 and diagonal == {color} and input_grid[r - 1][c] != color:
                center_row, center_col = r, c
    result = [list(row) for row in input_grid]
    for r in range(height):
        for c in range(width):
            if input_grid[r][c] == 0:
                continue
            for y in (r, 2 * center_row - r):
                for x in (c, 2 * center_col - c):
                    if 0 <= y < height and 0 <= x < width:
                        result[y][x] = input_grid[r][c]
    return result
