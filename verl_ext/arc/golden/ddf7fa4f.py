def solve(input_grid):
    """
    Observations:
    - The top row has single coloured cells, and rectangles of 5 are below.
    - Each rectangle lies below exactly one of these cells.
    - In the output it has the colour of this cell.
    Procedure:
    1. From each 5 that was not seen yet, walk through its rectangle.
    2. Look in the top row, in the columns of the rectangle, for the coloured cell.
    3. Write its colour in the rectangle.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    seen = set()
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 5 or (row, col) in seen:
                continue
            seen.add((row, col))
            shape = [(row, col)]
            # The list grows while it is gone through.
            for r, c in shape:
                for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                    inside = 0 <= y < height and 0 <= x < width
                    if inside and input_grid[y][x] == 5 and (y, x) not in seen:
                        seen.add((y, x))
                        shape.append((y, x))
            colour = max(input_grid[0][c] for r, c in shape)
            for r, c in shape:
                result[r][c] = colour
    return result
