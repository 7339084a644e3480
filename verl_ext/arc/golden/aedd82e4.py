def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input.
    - A cell of colour 2 becomes 1 if none of its four direct neighbours is 2.
    - All other cells are unchanged; neighbours at a corner do not count.
    Procedure:
    1. Copy the grid.
    2. For each 2, count the cells of colour 2 above, below, left and right.
    3. If there is none, write 1.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 2:
                continue
            count = 0
            for r, c in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
                if 0 <= r < height and 0 <= c < width and input_grid[r][c] == 2:
                    count += 1
            if count == 0:
                result[row][col] = 1
    return result
