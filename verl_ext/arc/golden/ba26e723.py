def solve(input_grid):
    """
    Observations:
    - The input is a pattern of 4 in three rows.
    - In every third column, beginning with the first, all 4 become 6.
    - Empty cells and the other columns stay.
    Procedure:
    1. Go through all cells.
    2. Write 6 where the cell is 4 and the number of its column is a multiple of three.
    3. Copy the others.
    """
    result = []
    for row in input_grid:
        cells = []
        for c, cell in enumerate(row):
            if cell == 4 and c % 3 == 0:
                cells.append(6)
            else:
                cells.append(cell)
        result.append(cells)
    return result
