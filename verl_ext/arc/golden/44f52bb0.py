def solve(input_grid):
    """
    Observations:
    - The output is a single cell, either 1 or 7.
    - It is 1 when every row of the input reads the same from both sides.
    - It is 7 when at least one row does not.
    Procedure:
    1. Compare each row with its reverse.
    2. Return 1 if all are equal, else 7.
    """
    symmetric = all(row == row[::-1] for row in input_grid)
    colour = 1 if symmetric else 7
    result = [[colour]]
    return result
