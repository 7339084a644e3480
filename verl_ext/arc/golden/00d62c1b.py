def solve(input_grid):
    """
    Observations:
    - The input has curves of colour 3 on a ground of 0.
    - The areas that a curve encloses become 4; everything else is unchanged.
    - A curve closes at its corners too: a way through the ground goes up, down, left or right only.
    Procedure:
    1. Imagine a border of 0 around the grid, and walk from its corner through all cells of colour 0.
    2. The cells of colour 0 that are not reached are enclosed.
    3. Write 4 in them.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    queue = [(-1, -1)]
    seen = {(-1, -1)}
    for r, c in queue:
        for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
            if (y, x) in seen or not (-1 <= y <= height and -1 <= x <= width):
                continue
            if 0 <= y < height and 0 <= x < width and input_grid[y][x] != 0:
                continue
            seen.add((y, x))
            queue.append((y, x))
    result = [list(row) for row in input_grid]
    for r in range(height):
        for c in range(width):
            if input_grid[r][c] == 0 and (r, c) not in seen:
                result[r][c] = 4
    return result
