def solve(input_grid):
    """
    Observations:
    - A line of 4 divides the input into two equal pictures.
    - The output is as large as one of them.
    - It has 3 where at least one of the pictures has a cell.
    Procedure:
    1. Find the row that is 4 throughout.
    2. Compare the rows above it with the rows below it, cell by cell.
    3. Write 3 unless both cells are 0.
    """
    line = next(r for r, row in enumerate(input_grid) if set(row) == {4})
    upper_part = input_grid[:line]
    lower_part = input_grid[line + 1 :]
    result = []
    for upper, lower in zip(upper_part, lower_part):
        row = []
        for first, second in zip(upper, lower):
            row.append(0 if first == 0 and second == 0 else 3)
        result.append(row)
    return result
