def solve(input_grid):
    """
    Observations:
    - The input has one coloured cell in its middle.
    - The output has a frame of this colour along the edges of the grid.
    - The cell itself is gone.
    Procedure:
    1. Find the colour.
    2. Write it in all cells of the first and last row and column.
    3. All other cells are 0.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    colour = max(cell for row in input_grid for cell in row)
    result = []
    for r in range(height):
        row = []
        for c in range(width):
            at_edge = r in (0, height - 1) or c in (0, width - 1)
            row.append(colour if at_edge else 0)
        result.append(row)
    return result
