def solve(input_grid):
    """
    Observations:
    - The input has diagonal lines of one colour.
    - Coloured cells in the second, fourth, sixth column and so on become 4.
    - Coloured cells in the other columns are unchanged, and empty cells stay empty.
    Procedure:
    1. Copy the grid.
    2. Go through every second column, starting with the second one.
    3. Write 4 where a cell is not 0.
    """
    result = [list(row) for row in input_grid]
    for row in result:
        for col in range(1, len(row), 2):
            if row[col] != 0:
                row[col] = 4
    return result
