def solve(input_grid):
    """
    Observations:
    - The input holds the same pattern twice.
    - In a wide grid the two copies are side by side; in a tall grid one is below the other.
    - The output is one copy.
    Procedure:
    1. Compare the width with the height.
    2. If the grid is wider than tall, keep the left half of each row.
    3. Otherwise keep the upper half of the rows.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    if width > height:
        result = [row[: width // 2] for row in input_grid]
    else:
        result = [list(row) for row in input_grid[: height // 2]]
    return result
