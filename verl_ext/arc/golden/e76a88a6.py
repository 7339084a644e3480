def solve(input_grid):
    """
    Observations:
    - The input has one picture of two colours and several rectangles of 5 of the same size.
    - In the output every rectangle has become a copy of the picture.
    - The picture itself stays.
    Procedure:
    1. Find the bounding box of the picture: the cells that are neither 0 nor 5.
    2. Each 5 that has no 5 above it and none to its left is the corner of a rectangle.
    3. Copy the picture to that place.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    cells = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] not in (0, 5)]
    top = min(r for r, c in cells)
    bottom = max(r for r, c in cells)
    left = min(c for r, c in cells)
    right = max(c for r, c in cells)
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 5:
                continue
            has_above = row > 0 and input_grid[row - 1][col] == 5
            has_left = col > 0 and input_grid[row][col - 1] == 5
            if has_above or has_left:
                continue
            for r in range(top, bottom + 1):
                for c in range(left, right + 1):
                    result[row + r - top][col + c - left] = input_grid[r][c]
    return result
