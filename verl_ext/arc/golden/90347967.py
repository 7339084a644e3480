def solve(input_grid):
    """
    Observations:
    - The input has a picture with one cell of colour 5.
    - In the output the picture is turned by a half around the 5.
    - The 5 stays where it is.
    Procedure:
    1. Find the 5.
    2. A cell that is so many rows and columns away from it moves as far to the other side.
    3. Write all coloured cells at their new places.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    row, col = next((r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 5)
    result = [[0] * width for _ in range(height)]
    for r in range(height):
        for c in range(width):
            y = 2 * row - r
            x = 2 * col - c
            if input_grid[r][c] and 0 <= y < height and 0 <= x < width:
                result[y][x] = input_grid[r][c]
    return result
