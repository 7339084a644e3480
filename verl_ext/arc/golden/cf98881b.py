def solve(input_grid):
    """
    Observations:
    - Two columns of 2 separate three parts of the same size, in the colours 4, 9 and 1.
    - The output has the size of one part: the parts are laid over each other.
    - The left part is on top, the middle part is below it, and the right part is at the bottom.
    - A cell that is 0 lets the part below shine through.
    Procedure:
    1. Cut each row into its three parts.
    2. At each place take the first of the three cells that is not 0; if all are 0, take 0.
    """
    size = input_grid[0].index(2)
    result = []
    for row in input_grid:
        new_row = []
        for col in range(size):
            left = row[col]
            middle = row[size + 1 + col]
            right = row[2 * size + 2 + col]
            new_row.append(left or middle or right)
        result.append(new_row)
    return result
