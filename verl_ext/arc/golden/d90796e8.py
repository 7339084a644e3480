def solve(input_grid):
    """
    Observations:
    - The input has cells of the colours 2, 3 and 5.
    - Where a 3 and a 2 touch, above, below, left or right, the 3 becomes 8 and the 2 disappears.
    - All other cells are unchanged.
    Procedure:
    1. Copy the grid.
    2. For each 3, look at its four direct neighbours in the input.
    3. If one of them is 2, write 8 at the place of the 3 and 0 at the place of the 2.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 3:
                continue
            for r, c in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
                if 0 <= r < height and 0 <= c < width and input_grid[r][c] == 2:
                    result[row][col] = 8
                    result[r][c] = 0
    return result
