def solve(input_grid):
    """
    Observations:
    - The input has one figure of several colours, and some figures of colour 8 with the same outline.
    - In the output each figure of colour 8 has the colours of the coloured figure.
    - The coloured figure itself is gone.
    Procedure:
    1. Collect the coloured cells that are not 8; find their first row and column.
    2. Walk from each 8 through the cells of colour 8 that touch it at a side: one figure.
    3. Write the coloured figure so that its first row and column are those of the figure 8.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    model = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] not in (0, 8)]
    model_top = min(r for r, c in model)
    model_left = min(c for r, c in model)
    eights = {(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 8}
    result = [[0] * width for _ in range(height)]
    # Each round takes one figure out of the cells that are left.
    while eights:
        figure = [eights.pop()]
        for r, c in figure:
            for cell in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                if cell in eights:
                    eights.remove(cell)
                    figure.append(cell)
        top = min(r for r, c in figure)
        left = min(c for r, c in figure)
        for r, c in model:
            result[top + r - model_top][left + c - model_left] = input_grid[r][c]
    return result
