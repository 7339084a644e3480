def solve(input_grid):
    """
    Observations:
    - The input has figures of 1, some of which enclose empty cells.
    - In the output these are 3.
    - Figures that are open stay 1.
    Procedure:
    1. Walk through the empty cells that can be reached from outside the grid.
    2. From each 1, walk through its figure; it is closed if a neighbour is an empty cell that was not reached.
    3. If so, write 3.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    outside = {(-1, -1)}
    queue = [(-1, -1)]
    # There is an empty border around the grid, and the list grows while it is gone through.
    for r, c in queue:
        for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
            if (y, x) in outside or not (-1 <= y <= height and -1 <= x <= width):
                continue
            inside = 0 <= y < height and 0 <= x < width
            if inside and input_grid[y][x]:
                continue
            outside.add((y, x))
            queue.append((y, x))
    result = [list(row) for row in input_grid]
    seen = set()
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 1 or (row, col) in seen:
                continue
            seen.add((row, col))
            figure = [(row, col)]
            closed = False
            for r, c in figure:
                for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                    if not (0 <= y < height and 0 <= x < width):
                        continue
                    if input_grid[y][x] == 0 and (y, x) not in outside:
                        closed = True
                    if input_grid[y][x] == 1 and (y, x) not in seen:
                        seen.add((y, x))
                        figure.append((y, x))
            if closed:
                for r, c in figure:
                    result[r][c] = 3
    return result
