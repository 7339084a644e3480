def solve(input_grid):
    """
    Observations:
    - Lines of colour 5 cut off the top left corner of the grid; there is one figure in it, the model.
    - Outside there are figures of several colours.
    - The figure outside that has the same shape as the model becomes 5.
    - The model itself is unchanged.
    Procedure:
    1. Find all figures: cells of one colour, not 0 and not 5, that touch at a side.
    2. Describe the shape of a figure by the distances of its cells from its first row and column.
    3. The model is the figure whose cells are in the corner that the lines of 5 cut off.
    4. Write 5 in the other figure with the shape of the model.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    free = {(r, c) for r in range(height) for c in range(width) if input_grid[r][c] not in (0, 5)}
    figures = []
    while free:
        figure = [free.pop()]
        color = input_grid[figure[0][0]][figure[0][1]]
        for r, c in figure:
            for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                if (y, x) in free and input_grid[y][x] == color:
                    free.remove((y, x))
                    figure.append((y, x))
        figures.append(figure)

    def shape(figure):
        top = min(r for r, c in figure)
        left = min(c for r, c in figure)
        return sorted((r - top, c - left) for r, c in figure)

    # The upright line starts in the first row, the level line in the first column.
    line_col = input_grid[0].index(5)
    line_row = [row[0] for row in input_grid].index(5)
    model = next(figure for figure in figures if all(r < line_row and c < line_col for r, c in figure))
    result = [list(row) for row in input_grid]
    for figure in figures:
        if figure is not model and shape(figure) == shape(model):
            for r, c in figure:
                result[r][c] = 5
    return result
