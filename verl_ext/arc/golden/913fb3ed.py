def solve(input_grid):
    """
    Observations:
    - The input has single cells of the colours 2, 3 and 8.
    - In the output each is surrounded by a ring: 2 by 1, 3 by 6, 8 by 4.
    - The ring is cut off at the edge.
    Procedure:
    1. Go through all coloured cells.
    2. Look up the colour of the ring.
    3. Write it at the eight neighbours that are in the grid.
    """
    rings = {2: 1, 3: 6, 8: 4}
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            colour = input_grid[row][col]
            if colour == 0:
                continue
            for r in range(max(row - 1, 0), min(row + 2, height)):
                for c in range(max(col - 1, 0), min(col + 2, width)):
                    if (r, c) != (row, col):
                        result[r][c] = rings[colour]
    return result
