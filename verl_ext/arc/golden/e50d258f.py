def solve(input_grid):
    """
    Observations:
    - The input has filled rectangles on a ground of 0, with the colours 8, 2 and 1 in them.
    - No two rectangles touch.
    - The output is the rectangle with the most cells of colour 2.
    Procedure:
    1. A rectangle has its top left corner where a coloured cell has nothing above it and nothing to its left.
    2. From there walk right and down to the last coloured cell, and cut the rectangle out.
    3. Keep the one with the highest count of 2.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    best = -1
    for top in range(height):
        for left in range(width):
            above = top > 0 and input_grid[top - 1][left] != 0
            before = left > 0 and input_grid[top][left - 1] != 0
            if input_grid[top][left] == 0 or above or before:
                continue
            right = left
            while right < width and input_grid[top][right] != 0:
                right += 1
            bottom = top
            while bottom < height and input_grid[bottom][left] != 0:
                bottom += 1
            part = [row[left:right] for row in input_grid[top:bottom]]
            count = sum(row.count(2) for row in part)
            if count > best:
                best = count
                result = part
    return result
