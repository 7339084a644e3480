def solve(input_grid):
    """
    Observations:
    - The input is empty but for a 1 in its lower left corner.
    - In the output a 1 goes up from there, one row at a time, and one column sideways with each row.
    - At the side edges it turns back; all other cells are 8.
    Procedure:
    1. Start in the column of the 1 in the lowest row, going right.
    2. For each row upwards write 1 in the present column and 8 in the others.
    3. Before each further step turn round if the next column is outside the grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    col = input_grid[-1].index(1)
    step = 1
    result = []
    for _ in range(height):
        row = [8] * width
        row[col] = 1
        # Rows are made from the lowest upwards.
        result.insert(0, row)
        if not 0 <= col + step < width:
            step = -step
        col += step
    return result
