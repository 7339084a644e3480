def solve(input_grid):
    """
    Observations:
    - The input has shapes of 5 with two, three or four cells.
    - In the output the colour says how many: four cells are 1, three are 2, two are 3.
    - Cells belong to one shape if they touch at a side.
    Procedure:
    1. From each 5 that was not seen yet, walk through its whole shape.
    2. Its colour is 5 minus its number of cells.
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
            for r, c in shape:
                result[r][c] = 5 - len(shape)
    return result
