def solve(input_grid):
    """
    Observations:
    - The grid has only the colours 6 and 7.
    - The output has the same size; every 6 is now 2.
    - The cells of colour 7 do not change.
    Procedure:
    1. Copy the grid cell by cell.
    2. Replace 6 by 2.
    """
    result = [list(row) for row in input_grid]
    for row in result:
        for col in range(len(row)):
            if row[col] == 6:
                row[col] = 2
    return result
