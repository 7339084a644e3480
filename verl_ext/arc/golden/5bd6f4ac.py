def solve(input_grid):
    """
    Observations:
    - The output is 3 by 3.
    - It is the part of the input in the top right corner.
    Procedure:
    1. Take the first three rows.
    2. Keep the last three cells of each.
    """
    result = [row[-3:] for row in input_grid[:3]]
    return result
