def solve(input_grid):
    """
    Observations:
    - The input has cells of colour 8.
    - In the output each is 2 if the grid, mirrored upside down, has an 8 there, too.
    - Otherwise it is 5.
    Procedure:
    1. Compare each 8 with the cell of the same column in the row as far from the bottom as its own is from the top.
    2. Write 2 if that is 8, else 5.
    """
    height = len(input_grid)
    result = []
    for r, row in enumerate(input_grid):
        opposite = input_grid[height - 1 - r]
        cells = []
        for cell, other in zip(row, opposite):
            if cell != 8:
                cells.append(0)
            elif other == 8:
                cells.append(2)
            else:
                cells.append(5)
        result.append(cells)
    return result
