def solve(input_grid):
    """
    Observations:
    - The input has single cells of colour 5 on a ground of 0.
    - In the output each 5 is surrounded by a ring of eight cells of colour 1.
    - The cells of colour 5 stay.
    Procedure:
    1. Copy the grid.
    2. For each 5, go through the 3 by 3 cells around it, within the grid.
    3. Write 1 wherever there is no 5.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] == 5:
                for r in range(max(row - 1, 0), min(row + 2, height)):
                    for c in range(max(col - 1, 0), min(col + 2, width)):
                        if input_grid[r][c] != 5:
                            result[r][c] = 1
    return result
