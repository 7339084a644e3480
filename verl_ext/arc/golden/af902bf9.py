def solve(input_grid):
    """
    Observations:
    - The input has cells of colour 4 that are the corners of rectangles.
    - In the output the inside of every rectangle is 2.
    - The corners stay.
    Procedure:
    1. For each 4 find the next 4 to its right in the same row and the next one below it in the same column.
    2. If there is a 4 at the fourth corner, too, fill what lies between the four.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for top in range(height):
        for left in range(width):
            if input_grid[top][left] != 4:
                continue
            to_right = [c for c in range(left + 1, width) if input_grid[top][c] == 4]
            below = [r for r in range(top + 1, height) if input_grid[r][left] == 4]
            if not to_right or not below:
                continue
            # The nearest ones; with the fourth they are the corners of a rectangle.
            right = to_right[0]
            bottom = below[0]
            if input_grid[bottom][right] != 4:
                continue
            for r in range(top + 1, bottom):
                for c in range(left + 1, right):
                    result[r][c] = 2
    return result
