def solve(input_grid):
    """
    Observations:
    - The input has closed frames in several colours.
    - In the output the inside of a frame is filled: with 5 if it is a single cell, with 7 if it has two.
    - Everything else stays.
    Procedure:
    1. Go through the empty cells that have not been visited, and collect the area of empty cells that each belongs to.
    2. An area of one cell becomes 5 and one of two cells 7; larger ones stay empty.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    seen = set()
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] or (row, col) in seen:
                continue
            seen.add((row, col))
            area = [(row, col)]
            # The list grows while it is gone through.
            for r, c in area:
                for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                    inside = 0 <= y < height and 0 <= x < width
                    if inside and input_grid[y][x] == 0 and (y, x) not in seen:
                        seen.add((y, x))
                        area.append((y, x))
            if len(area) <= 2:
                for r, c in area:
                    result[r][c] = 5 if len(area) == 1 else 7
    return result
