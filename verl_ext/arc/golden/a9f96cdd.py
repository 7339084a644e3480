def solve(input_grid):
    """
    Observations:
    - The input has a single cell of colour 2; it is gone in the output.
    - The four cells that touch it at a corner get colours: 3 up left, 6 up right, 8 down left, 7 down right.
    - A corner that lies outside the grid is left out.
    Procedure:
    1. Find the cell of colour 2.
    2. Start with an empty grid.
    3. Write the four colours around the place, wherever it is inside the grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * width for _ in range(height)]
    corners = [(-1, -1, 3), (-1, 1, 6), (1, -1, 8), (1, 1, 7)]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] == 2:
                for down, right, colour in corners:
                    r = row + down
                    c = col + right
                    if 0 <= r < height and 0 <= c < width:
                        result[r][c] = colour
    return result
