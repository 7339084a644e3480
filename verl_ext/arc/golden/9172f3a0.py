def solve(input_grid):
    """
    Observations:
    - The input is 3 by 3 and the output is 9 by 9.
    - The cell of the output at row r and column c has the colour of the input cell at r // 3 and c // 3.
    Procedure:
    1. Go through all cells of the output.
    2. Look each of them up in the input.
    """
    height = 3 * len(input_grid)
    width = 3 * len(input_grid[0])
    result = []
    for r in range(height):
        result.append([input_grid[r // 3][c // 3] for c in range(width)])
    return result
