def solve(input_grid):
    """
    Observations:
    - The input has cells of colour 1 in rows, with one empty cell between neighbours.
    - In the output an empty cell with a 1 directly left and directly right of it is 2.
    - Nothing else changes.
    Procedure:
    1. Copy the grid.
    2. For each cell that has neighbours on both sides, test whether both are 1 in the input.
    3. If so, write 2.
    """
    result = [list(row) for row in input_grid]
    for r, row in enumerate(input_grid):
        for c in range(1, len(row) - 1):
            if row[c - 1] == 1 and row[c + 1] == 1:
                result[r][c] = 2
    return result
