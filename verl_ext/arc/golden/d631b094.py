def solve(input_grid):
    """
    Observations:
    - The input has one colour besides 0.
    - The output is a single row.
    - Its length is the number of coloured cells, and all of its cells have their colour.
    Procedure:
    1. Collect all cells that are not 0.
    2. They are the only row of the output.
    """
    cells = [cell for row in input_grid for cell in row if cell != 0]
    result = [cells]
    return result
