def solve(input_grid):
    """
    Observations:
    - The input has square frames of 1.
    - In the output their insides are filled.
    - If the side of the inside is even it becomes 2, otherwise 7.
    - What is not enclosed stays empty.
    Procedure:
    1. From each 0 that was not seen yet, walk through its whole area.
    2. An area that reaches the edge of the grid is outside.
    3. For the others take the number of columns that they have, and fill them.
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
            cols = {c for r, c in shape}
            rows = {r for r, c in shape}
            if min(rows) == 0 or min(cols) == 0 or max(rows) == height - 1 or max(cols) == width - 1:
                continue
            colour = 2 if len(cols) % 2 == 0 else 7
            for r, c in shape:
                result[r][c] = colour
    return result
