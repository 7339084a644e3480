def solve(input_grid):
    """
    Observations:
    - The input has cells of colour 3 on a ground of 0.
    - A 3 with another 3 directly above, below, left or right of it becomes 8.
    - A 3 without such a neighbour stays 3; touching at a corner does not count.
    Procedure:
    1. Copy the grid.
    2. For each 3, look at its four direct neighbours in the input.
    3. If one of them is 3, write 8.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 3:
                continue
            for r, c in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
                if 0 <= r < height and 0 <= c < width and input_grid[r][c] == 3:
                    result[row][col] = 8
    return result
