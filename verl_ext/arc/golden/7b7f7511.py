def solve(input_grid):
    """
    Observations:
    - The input holds the same pattern twice.
    - The two copies are side by side, or one is below the other.
    - The output is one copy.
    Procedure:
    1. Compare the upper half of the rows with the lower half.
    2. If they are equal, keep the upper half.
    3. Otherwise keep the left half of each row.
    """
    middle = len(input_grid) // 2
    upper = input_grid[:middle]
    lower = input_grid[middle:]
    if upper == lower:
        result = [list(row) for row in upper]
    else:
        result = [row[: len(row) // 2] for row in input_grid]
    return result
