def solve(input_grid):
    """
    Observations:
    - A column of 4 divides the input into two pictures, the left one in 6 and the right one in 8.
    - The output is as large as one of them.
    - It has 2 where at least one of them has a cell.
    Procedure:
    1. Find the column of 4.
    2. Compare the cells left and right of it in each row.
    3. Write 2 unless both are 0.
    """
    width = len(input_grid[0])
    line = next(c for c in range(width) if all(row[c] == 4 for row in input_grid))
    result = []
    for row in input_grid:
        cells = []
        for left, right in zip(row[:line], row[line + 1 :]):
            cells.append(2 if left or right else 0)
        result.append(cells)
    return result
