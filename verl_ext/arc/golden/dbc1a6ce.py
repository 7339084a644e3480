def solve(input_grid):
    """
    Observations:
    - The input has single cells of colour 1.
    - In the output two of them in the same row or in the same column are joined by a line of 8.
    - The cells of colour 1 stay.
    Procedure:
    1. For each 1 find the next one to its right and the next one below it.
    2. Write 8 at the empty cells between them.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 1:
                continue
            to_right = [c for c in range(col + 1, width) if input_grid[row][c] == 1]
            if to_right:
                for c in range(col + 1, to_right[0]):
                    result[row][c] = 8
            below = [r for r in range(row + 1, height) if input_grid[r][col] == 1]
            if below:
                for r in range(row + 1, below[0]):
                    result[r][col] = 8
    return result
