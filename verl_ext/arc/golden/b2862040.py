def solve(input_grid):
    """
    Observations:
    - The ground is 9, and it has figures of 1.
    - In the output the figures that enclose some ground are 8.
    - Figures without a hole stay 1.
    Procedure:
    1. Walk through all ground that can be reached from outside the grid; what is left of the ground is enclosed.
    2. From each enclosed cell go to the 1 next to it, and walk through its figure.
    3. Write 8 in these figures.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    outside = {(-1, -1)}
    queue = [(-1, -1)]
    # The grid has a border of ground around it, and the list grows while it is gone through.
    for r, c in queue:
        for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
            if (y, x) in outside or not (-1 <= y <= height and -1 <= x <= width):
                continue
            inside = 0 <= y < height and 0 <= x < width
            if inside and input_grid[y][x] == 1:
                continue
            outside.add((y, x))
            queue.append((y, x))
    holes = []
    for r in range(height):
        for c in range(width):
            if input_grid[r][c] != 1 and (r, c) not in outside:
                holes.append((r, c))
    result = [list(row) for row in input_grid]
    for r, c in holes:
        for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
            if result[y][x] == 1:
                result[y][x] = 8
                figure = [(y, x)]
                for row, col in figure:
                    for below, right in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
                        if 0 <= below < height and 0 <= right < width and result[below][right] == 1:
                            result[below][right] = 8
                            figure.append((below, right))
    return result
