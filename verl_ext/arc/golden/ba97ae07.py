def solve(input_grid):
    """
    Observations:
    - The input has a broad horizontal bar and a broad vertical bar in different colours, which cross.
    - In the input one of them is in front where they cross.
    - In the output the other one is in front.
    Procedure:
    1. Find the colour of the crossing and the other colour.
    2. The rows of the horizontal bar have no empty cell, nor do the columns of the vertical one.
    3. Write the other colour where such rows and columns meet.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    rows = [r for r in range(height) if 0 not in input_grid[r]]
    cols = [c for c in range(width) if all(row[c] != 0 for row in input_grid)]
    front = input_grid[rows[0]][cols[0]]
    back = next(cell for row in input_grid for cell in row if cell not in (0, front))
    result = [list(row) for row in input_grid]
    for r in rows:
        for c in cols:
            result[r][c] = back
    return result
