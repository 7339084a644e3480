def solve(input_grid):
    """
    Observations:
    - The input has two colours; one of them is 5.
    - In the output, the cells that were 5 have the other colour.
    - The cells that had the other colour are 0.
    Procedure:
    1. Find the colour that is not 5.
    2. Write it where the input is 5, and 0 elsewhere.
    """
    cells = [cell for row in input_grid for cell in row]
    colour = max(cell for cell in cells if cell != 5)
    result = []
    for row in input_grid:
        result.append([colour if cell == 5 else 0 for cell in row])
    return result
