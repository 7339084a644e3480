def solve(input_grid):
    """
    Observations:
    - Vertical bars of 2 of different lengths stand at the same lowest row.
    - In the output the lower half of each bar is 8.
    - If the length of a bar is odd, its middle cell stays 2.
    Procedure:
    1. Count the cells of each column.
    2. Half of them, rounded down, become 8, from the lowest upwards.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for c in range(width):
        rows = [r for r in range(height) if input_grid[r][c] == 2]
        half = len(rows) // 2
        for r in rows[len(rows) - half :]:
            result[r][c] = 8
    return result
