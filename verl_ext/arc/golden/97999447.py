def solve(input_grid):
    """
    Observations:
    - The input has single coloured cells.
    - In the output a line leads from each of them to the right edge.
    - Its cells are the colour and 5 by turns, beginning with the colour.
    Procedure:
    1. Go through all coloured cells.
    2. Write the colour at an even distance to the right of the cell, 5 at an odd one.
    """
    result = [list(row) for row in input_grid]
    for r, row in enumerate(input_grid):
        for start, cell in enumerate(row):
            if cell == 0:
                continue
            for c in range(start, len(row)):
                result[r][c] = cell if (c - start) % 2 == 0 else 5
    return result
