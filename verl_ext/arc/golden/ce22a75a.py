def solve(input_grid):
    """
    Observations:
    - The input has cells of colour 5, each at the centre of a 3 by 3 block of the grid.
    - In the output the whole block around each 5 is 1, the centre too.
    - All other cells are 0.
    Procedure:
    1. Start with an empty grid.
    2. For each 5, write 1 in the nine cells around and at its place.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * width for _ in range(height)]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] == 5:
                for r in range(row - 1, row + 2):
                    for c in range(col - 1, col + 2):
                        result[r][c] = 1
    return result
