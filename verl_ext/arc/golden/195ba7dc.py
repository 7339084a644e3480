def solve(input_grid):
    """
    Observations:
    - A column of 2 divides the input into two pictures of 7.
    - The output is as large as one of them.
    - It has 1 where at least one of them has a cell.
    Procedure:
    1. Find the column of 2.
    2. Compare the cells left and right of it in each row.
    3. Write 1 unless both are 0.
    """
    width = len(input_grid[0])
    line = next(c for c in range(width) if all(row[c] == 2 for row in input_grid))
    result = []
    for row in input_grid:
        cells = []
        for left, right in zip(row[:line], row[line + 1 :]):
            cells.append(1 if left or right else 0)
        result.append(cells)
    return result
