def solve(input_grid):
    """
    Observations:
    - A line of 4 divides the input into two equal pictures.
    - The output is as large as one of them.
    - It has 3 where exactly one of the pictures has a cell.
    Procedure:
    1. Find the row that is 4 throughout.
    2. Compare the rows above it with the rows below it, cell by cell.
    3. Write 3 where one cell is 0 and the other is not, else 0.
    """
    line = next(r for r, row in enumerate(input_grid) if set(row) == {4})
    upper_part = input_grid[:line]
    lower_part = input_grid[line + 1 :]
    result = []
    for upper, lower in zip(upper_part, lower_part):
        row = []
        for first, second in zip(upper, lower):
            row.append(3 if (first == 0) != (second == 0) else 0)
        result.append(row)
    return result
