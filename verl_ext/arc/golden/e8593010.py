def solve(input_grid):
    """
    Observations:
    - The ground is 5, and its holes of one, two or three empty cells matter.
    - In the output a hole of one cell is 3, one of two cells 2, one of three cells 1.
    - Cells belong to one hole if they touch at a side.
    Procedure:
    1. From each 0 that was not seen yet, walk through its whole hole.
    2. Its colour is 4 minus its number of cells.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    seen = set()
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 0 or (row, col) in seen:
                continue
            seen.add((row, col))
            shape = [(row, col)]
            # The list grows while it is gone through.
            for r, c in shape:
                for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                    inside = 0 <= y < height and 0 <= x < width
                    if inside and input_grid[y][x] == 0 and (y, x) not in seen:
                        seen.add((y, x))
                        shape.append((y, x))
            for r, c in shape:
                result[r][c] = 4 - len(shape)
    return result
