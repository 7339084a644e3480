def solve(input_grid):
    """
    Observations:
    - The left half of the input uses colour 4, the right half colour 3.
    - The output has the size of one half.
    - A cell of the output is 6 where at least one of the halves is coloured, and 0 where both are empty.
    Procedure:
    1. Cut each row into two halves of equal width.
    2. Lay one half over the other.
    3. Write 6 where one of the two cells is not 0.
    """
    half = len(input_grid[0]) // 2
    result = []
    for row in input_grid:
        new_row = []
        for col in range(half):
            if row[col] != 0 or row[col + half] != 0:
                new_row.append(6)
            else:
                new_row.append(0)
        result.append(new_row)
    return result
