def solve(input_grid):
    """
    Observations:
    - The input has rectangular shapes of colour 6 on a ground of 8; some of them are hollow.
    - In the output the hollow inside of a shape is 4.
    - Around each shape, on the outside, there is a ring of 3, also at the corners.
    - The cells of colour 6 are unchanged.
    Procedure:
    1. Walk from the corner of an imagined border of 8 through all cells of colour 8: these are outside.
    2. A cell of colour 8 that is not outside becomes 4.
    3. A cell outside with a 6 among the eight cells around it becomes 3.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    sixes = {(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 6}
    queue = [(-1, -1)]
    seen = {(-1, -1)}
    for r, c in queue:
        for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
            if -1 <= y <= height and -1 <= x <= width and (y, x) not in sixes and (y, x) not in seen:
                seen.add((y, x))
                queue.append((y, x))
    result = [list(row) for row in input_grid]
    for r in range(height):
        for c in range(width):
            if (r, c) in sixes:
                continue
            around = {(y, x) for y in range(r - 1, r + 2) for x in range(c - 1, c + 2)}
            if (r, c) not in seen:
                result[r][c] = 4
            elif around & sixes:
                result[r][c] = 3
    return result
