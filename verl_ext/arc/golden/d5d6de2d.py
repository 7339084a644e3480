def solve(input_grid):
    """
    Observations:
    - The input has shapes of colour 2 on a ground of 0; some of them are closed rings.
    - In the output all cells of colour 2 are gone.
    - The area inside each ring is 3, and everything else is 0.
    Procedure:
    1. Imagine a border of 0 around the grid, and walk from its corner through all cells of colour 0.
    2. A cell of colour 0 that is not reached is inside a ring.
    3. Write 3 in these cells and 0 in all others.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    queue = [(-1, -1)]
    seen = {(-1, -1)}
    for r, c in queue:
        for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
            if (y, x) in seen or not (-1 <= y <= height and -1 <= x <= width):
                continue
            if 0 <= y < height and 0 <= x < width and input_grid[y][x] == 2:
                continue
            seen.add((y, x))
            queue.append((y, x))
    result = []
    for r in range(height):
        result.append([3 if input_grid[r][c] == 0 and (r, c) not in seen else 0 for c in range(width)])
    return result
