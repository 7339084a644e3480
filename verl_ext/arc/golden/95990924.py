def solve(input_grid):
    """
    Observations:
    - The input has 2 by 2 squares of 5.
    - In the output four cells stand diagonally at the corners of each square.
    - They are 1 at the upper left, 2 at the upper right, 3 at the lower left and 4 at the lower right.
    Procedure:
    1. Go through all places where a 2 by 2 square of 5 begins.
    2. Write the four numbers one row and one column outside its corners.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for r in range(height - 1):
        for c in range(width - 1):
            square = {input_grid[r][c], input_grid[r][c + 1], input_grid[r + 1][c], input_grid[r + 1][c + 1]}
            if square != {5}:
                continue
            corners = ((1, r - 1, c - 1), (2, r - 1, c + 2), (3, r + 2, c - 1), (4, r + 2, c + 2))
            for number, y, x in corners:
                if 0 <= y < height and 0 <= x < width:
                    result[y][x] = number
    return result
