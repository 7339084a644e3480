def solve(input_grid):
    """
    Observations:
    - The input has single cells of several colours.
    - Each cell of colour 2 gets a ring of 1 around it, cut off at the edge of the grid.
    - Cells of other colours get no ring, and every cell coloured in the input keeps its colour.
    Procedure:
    1. Copy the grid.
    2. For each 2, go through the cells around it that are inside the grid.
    3. Write 1 where the input is 0.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 2:
                continue
            for r in range(max(row - 1, 0), min(row + 2, height)):
                for c in range(max(col - 1, 0), min(col + 2, width)):
                    if input_grid[r][c] == 0:
                        result[r][c] = 1
    return result
