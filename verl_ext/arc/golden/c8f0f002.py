def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input.
    - Every cell of colour 7 becomes 5.
    - All other cells keep their colour.
    Procedure:
    1. Go through all cells.
    2. Write 5 where the cell is 7, else the cell itself.
    """
    result = []
    for row in input_grid:
        result.append([5 if cell == 7 else cell for cell in row])
    return result
