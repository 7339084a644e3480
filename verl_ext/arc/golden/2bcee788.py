def solve(input_grid):
    """
    Observations:
    - The input has a figure of one colour, with a straight line of colour 2 along one side.
    - In the output the figure and its mirror image lie side by side; the line of 2 is where the image starts.
    - The image has the colour of the figure, and covers the 2.
    - The ground is 3 instead of 0.
    Procedure:
    1. Collect the cells of the figure and those of the line.
    2. If the whole line is outside the columns of the figure, mirror to the left or to the right.
    3. Otherwise mirror up or down. The mirror axis is the edge between the figure and the line.
    4. Write the figure and its image on a ground of 3.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    line = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 2]
    figure = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] not in (0, 2)]
    color = input_grid[figure[0][0]][figure[0][1]]
    line_row, line_col = line[0]
    rows = [r for r, c in figure]
    cols = [c for r, c in figure]
    result = [[3] * width for _ in range(height)]
    for r, c in figure:
        y, x = r, c
        # The cell next to the axis has its image in the line itself.
        if line_col > max(cols):
            x = 2 * line_col - 1 - c
        elif line_col < min(cols):
            x = 2 * line_col + 1 - c
        elif line_row > max(rows):
            y = 2 * line_row - 1 - r
        else:
            y = 2 * line_row + 1 - r
        result[r][c] = color
        if 0 <= y < height and 0 <= x < width:
            result[y][x] = color
    return result
