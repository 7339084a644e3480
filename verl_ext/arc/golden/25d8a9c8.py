def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input and only the colours 0 and 5.
    - Each row of the output has one colour.
    - The row is 5 exactly where all cells of the input row are equal; else it is 0.
    Procedure:
    1. For each row, test whether it has only one colour.
    2. Write a row of 5 if so, and a row of 0 if not.
    """
    result = []
    for row in input_grid:
        if len(set(row)) == 1:
            colour = 5
        else:
            colour = 0
        result.append([colour] * len(row))
    return result
