def solve(input_grid):
    """
    Observations:
    - The input has cells of colour 2: some are single, and some are pairs that touch at a side.
    - In the output every pair is surrounded by a ring of 3, also at its corners.
    - The ring is cut off at the edge of the grid, and single cells get no ring.
    Procedure:
    1. Copy the grid.
    2. For each 2 that has a 2 above, below, left or right, go through the 3 by 3 cells around it.
    3. Write 3 where the input is 0.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    places = {(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 2}
    result = [list(row) for row in input_grid]
    for row, col in places:
        beside = {(row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)}
        if not beside & places:
            continue
        for r in range(max(row - 1, 0), min(row + 2, height)):
            for c in range(max(col - 1, 0), min(col + 2, width)):
                if input_grid[r][c] == 0:
                    result[r][c] = 3
    return result
