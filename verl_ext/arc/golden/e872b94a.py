def solve(input_grid):
    """
    Observations:
    - Lines of 5 divide the empty cells into several areas.
    - Only the number of areas matters: cells belong together if they touch at a side.
    - The output is a column with one empty cell for each area.
    Procedure:
    1. Go through the empty cells, and from each that was not seen yet walk through its whole area.
    2. Count the areas.
    3. Make a row with a single 0 for each.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    seen = set()
    count = 0
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] or (row, col) in seen:
                continue
            count += 1
            seen.add((row, col))
            queue = [(row, col)]
            # The list grows while it is gone through.
            for r, c in queue:
                for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                    inside = 0 <= y < height and 0 <= x < width
                    if inside and input_grid[y][x] == 0 and (y, x) not in seen:
                        seen.add((y, x))
                        queue.append((y, x))
    result = [[0] for _ in range(count)]
    return result
