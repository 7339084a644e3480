def solve(input_grid):
    """
    Observations:
    - The input is made of blocks of 2 by 2.
    - The output is always 2 by 2.
    - It is the block in the top left corner.
    Procedure:
    1. Take the first two rows.
    2. Keep the first two cells of each.
    """
    result = [row[:2] for row in input_grid[:2]]
    return result
