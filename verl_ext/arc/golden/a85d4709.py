def solve(input_grid):
    """
    Observations:
    - The grid is 3 by 3, and each row has exactly one cell of colour 5.
    - Each row of the output has one colour, given by the column of the 5.
    - Left column: 2. Middle column: 4. Right column: 3.
    Procedure:
    1. Find the column of the 5 in each row.
    2. Fill the whole row with the colour of this column.
    """
    colours = [2, 4, 3]
    result = []
    for row in input_grid:
        colour = colours[row.index(5)]
        result.append([colour] * len(row))
    return result
