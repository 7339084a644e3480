def solve(input_grid):
    """
    Observations:
    - The input is a square of one colour with a single 0 in its centre.
    - In the output both diagonals are 0, so that they form an X.
    - All other cells are unchanged.
    Procedure:
    1. Copy the grid.
    2. In each row, write 0 at the two cells that lie on a diagonal.
    """
    size = len(input_grid)
    result = [list(row) for row in input_grid]
    for step in range(size):
        result[step][step] = 0
        result[step][size - 1 - step] = 0
    return result
