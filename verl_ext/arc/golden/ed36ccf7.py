def solve(input_grid):
    """
    Observations:
    - The output has as many cells as the input, and the same colours.
    - The last column of the input, read downwards, is the first row of the output.
    - The first column of the input is the last row of the output.
    - So the grid is turned by a quarter turn, counterclockwise.
    Procedure:
    1. Go through the columns from the last to the first.
    2. Collect the cells of each column from top to bottom as one row of the output.
    """
    width = len(input_grid[0])
    result = []
    for col in range(width - 1, -1, -1):
        result.append([row[col] for row in input_grid])
    return result
