def solve(input_grid):
    """
    Observations:
    - The input has arches: three cells in a row with two feet below their ends.
    - The output is the same with a 4 for each arch.
    - The 4 is in the lowest row, below the middle of the arch.
    Procedure:
    1. Look at each empty cell.
    2. If it has the same colour above it, to its left and to its right, it is under the middle of an arch.
    3. Write 4 at the foot of its column.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for r in range(1, height):
        for c in range(1, width - 1):
            colour = input_grid[r - 1][c]
            if input_grid[r][c] or not colour:
                continue
            if input_grid[r][c - 1] == colour and input_grid[r][c + 1] == colour:
                result[-1][c] = 4
    return result
