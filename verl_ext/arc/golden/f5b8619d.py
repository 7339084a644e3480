def solve(input_grid):
    """
    Observations:
    - The output repeats twice in each direction a grid of the input's size.
    - In this grid every column with a coloured cell is 8 wherever it is empty.
    - Coloured cells stay, and columns without one are empty.
    Procedure:
    1. Find the columns that have a coloured cell.
    2. Write 8 at their empty cells.
    3. Repeat every row twice, and all rows twice.
    """
    width = len(input_grid[0])
    marked = [any(row[c] for row in input_grid) for c in range(width)]
    upper = []
    for row in input_grid:
        cells = []
        for c, cell in enumerate(row):
            if cell == 0 and marked[c]:
                cells.append(8)
            else:
                cells.append(cell)
        upper.append(cells + cells)
    lower = [list(row) for row in upper]
    result = upper + lower
    return result
