def solve(input_grid):
    """
    Observations:
    - The output has one more row above and below, and one more column on each side.
    - The new cells repeat the nearest edge cell of the input.
    - The four corners of the output are 0.
    Procedure:
    1. Put each row between copies of its first and last cell.
    2. Put the top row of the input above and its last row below, each between zeros.
    """
    result = []
    result.append([0] + list(input_grid[0]) + [0])
    for row in input_grid:
        result.append([row[0]] + list(row) + [row[-1]])
    result.append([0] + list(input_grid[-1]) + [0])
    return result
