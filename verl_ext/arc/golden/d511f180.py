def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input.
    - Cells of colour 5 become 8, and cells of colour 8 become 5: the two colours trade places.
    - Cells of any other colour are unchanged.
    Procedure:
    1. Make a table of the two colours that change.
    2. Look every cell up in the table; a colour that is not in it stays.
    """
    swap = {5: 8, 8: 5}
    result = []
    for row in input_grid:
        result.append([swap.get(cell, cell) for cell in row])
    return result
