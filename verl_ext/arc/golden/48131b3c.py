def solve(input_grid):
    """
    Observations:
    - The input has one colour and empty cells.
    - In the output colour and empty cells have changed places.
    - This picture is there twice in each direction.
    Procedure:
    1. Find the colour.
    2. Write it where the input is empty, and 0 where it is not.
    3. Repeat the rows twice, and all of them twice.
    """
    colour = max(cell for row in input_grid for cell in row)
    upper = []
    for row in input_grid:
        swapped = [0 if cell else colour for cell in row]
        upper.append(swapped + swapped)
    lower = [list(row) for row in upper]
    result = upper + lower
    return result
