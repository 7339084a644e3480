def solve(input_grid):
    """
    Observations:
    - A column of 1 separates a left part in colour 7 from a right part in colour 5.
    - Both parts have the same size, and the output has this size too.
    - A cell of the output is 3 where both parts are empty, and 0 elsewhere.
    Procedure:
    1. Find the column of 1 and split each row there.
    2. Compare the two parts cell by cell.
    3. Write 3 where both cells are 0.
    """
    wall = input_grid[0].index(1)
    result = []
    for row in input_grid:
        new_row = []
        for col in range(wall):
            both_empty = row[col] == 0 and row[wall + 1 + col] == 0
            new_row.append(3 if both_empty else 0)
        result.append(new_row)
    return result
