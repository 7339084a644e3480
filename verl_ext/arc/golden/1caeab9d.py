def solve(input_grid):
    """
    Observations:
    - The input has three rectangles of equal size in the colours 1, 2 and 4.
    - In the output all are in the rows of the one of colour 1.
    - Their columns do not change.
    Procedure:
    1. Find the top row of each colour.
    2. Move each cell down or up by the difference to the top row of the 1.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    tops = {}
    for r, row in enumerate(input_grid):
        for cell in row:
            if cell and cell not in tops:
                tops[cell] = r
    result = [[0] * width for _ in range(height)]
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                result[r - tops[cell] + tops[1]][c] = cell
    return result
