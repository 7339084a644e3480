def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input, and the width is odd.
    - The middle column is unchanged.
    - All other columns become 0.
    Procedure:
    1. Find the middle column.
    2. Write 0 everywhere, then copy the middle cell of each row.
    """
    middle = len(input_grid[0]) // 2
    result = []
    for row in input_grid:
        new_row = [0] * len(row)
        new_row[middle] = row[middle]
        result.append(new_row)
    return result
