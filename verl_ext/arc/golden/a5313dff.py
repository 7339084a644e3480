def solve(input_grid):
    """
    Observations:
    - The input has lines of 2 on a ground of 0, and some of them enclose an area.
    - Cells of colour 0 that cannot reach the edge of the grid become 1.
    - Cells of colour 0 that can reach it stay 0; cells of colour 2 stay too.
    - A way leads from cell to cell up, down, left or right, and never through a 2.
    Procedure:
    1. Start at all cells of colour 0 at the edge of the grid.
    2. Walk from them to all cells of colour 0 that can be reached.
    3. Write 1 in each 0 that was not reached.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    reached = []
    for r in range(height):
        for c in range(width):
            if input_grid[r][c] == 0 and (r in (0, height - 1) or c in (0, width - 1)):
                reached.append((r, c))
    seen = set(reached)
    for r, c in reached:
        for cell in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
            inside = 0 <= cell[0] < height and 0 <= cell[1] < width
            if inside and cell not in seen and input_grid[cell[0]][cell[1]] == 0:
                seen.add(cell)
                reached.append(cell)
    result = [list(row) for row in input_grid]
    for r in range(height):
        for c in range(width):
            if input_grid[r][c] == 0 and (r, c) not in seen:
                result[r][c] = 1
    return result
