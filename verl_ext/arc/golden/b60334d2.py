def solve(input_grid):
    """
    Observations:
    - The input has single cells of colour 5.
    - In the output the neighbours of each at a side are 1, those at a corner 5.
    - The cells themselves are gone.
    Procedure:
    1. Make an empty grid.
    2. For each 5 of the input go through the eight cells around it.
    3. Write 1 at a side and 5 at a corner.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * width for _ in range(height)]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 5:
                continue
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    r = row + down
                    c = col + right
                    if not (0 <= r < height and 0 <= c < width):
                        continue
                    if down and right:
                        result[r][c] = 5
                    elif down or right:
                        result[r][c] = 1
    return result
