def solve(input_grid):
    """
    Observations:
    - On an empty ground the input has lines of one colour, some of which enclose areas.
    - In the output the enclosed areas are 2.
    - All other ground is 3.
    Procedure:
    1. Walk through the ground that can be reached from outside the grid.
    2. Write 3 in it, and 2 in the ground that was not reached.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    outside = {(-1, -1)}
    queue = [(-1, -1)]
    # There is a border of ground around the grid, and the list grows while it is gone through.
    for r, c in queue:
        for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
            if (y, x) in outside or not (-1 <= y <= height and -1 <= x <= width):
                continue
            inside = 0 <= y < height and 0 <= x < width
            if inside and input_grid[y][x]:
                continue
            outside.add((y, x))
            queue.append((y, x))
    result = []
    for r in range(height):
        row = []
        for c in range(width):
            if input_grid[r][c]:
                row.append(input_grid[r][c])
            else:
                row.append(3 if (r, c) in outside else 2)
        result.append(row)
    return result
