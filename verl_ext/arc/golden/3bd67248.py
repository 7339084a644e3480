def solve(input_grid):
    """
    Observations:
    - The left column of the input has one colour; everything else is 0.
    - The output keeps this column.
    - A diagonal of 2 rises from the second last row next to the column to the top right corner.
    - The bottom row is 4, apart from its first cell.
    Procedure:
    1. Copy the grid, which is square.
    2. In each row but the last, write 2 on the diagonal that ends in the top right corner.
    3. Write 4 in the last row from the second column on.
    """
    size = len(input_grid)
    result = [list(row) for row in input_grid]
    for row in range(size - 1):
        result[row][size - 1 - row] = 2
    for col in range(1, size):
        result[size - 1][col] = 4
    return result
