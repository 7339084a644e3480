def solve(input_grid):
    """
    Observations:
    - The input is full of colours in disorder, with many cells of 0.
    - In the output some areas of 0 have become 1, as if the cells of colour 1 had flowed into them.
    - The 1 flows up, down, left and right, through cells of 0 only.
    - Areas of 0 that no 1 touches stay, and so do all colours.
    Procedure:
    1. Start at all cells of colour 1.
    2. From each of them, go to the neighbours at its sides that are still 0, and write 1.
    3. Go on from these cells until there is no new one.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    queue = []
    for r in range(height):
        for c in range(width):
            if input_grid[r][c] == 1:
                queue.append((r, c))
    for r, c in queue:
        for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
            inside = 0 <= y < height and 0 <= x < width
            if inside and result[y][x] == 0:
                result[y][x] = 1
                queue.append((y, x))
    return result
