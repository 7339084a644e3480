def solve(input_grid):
    """
    Observations:
    - The input has several cells of colour 5, each with other coloured cells around it.
    - The output is 3 by 3 with 5 in the middle.
    - Every coloured neighbour of a 5 is in the output at the same place around the middle.
    Procedure:
    1. Find all cells of colour 5.
    2. Look at the 3 by 3 cells around each of them.
    3. Write the coloured ones at their place in the output.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * 3 for _ in range(3)]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 5:
                continue
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    r = row + down
                    c = col + right
                    if 0 <= r < height and 0 <= c < width and input_grid[r][c]:
                        result[1 + down][1 + right] = input_grid[r][c]
    return result
