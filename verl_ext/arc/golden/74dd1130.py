def solve(input_grid):
    """
    Observations:
    - The grid is square and the output has the same size.
    - The cells on the main diagonal stay where they are.
    - The first column of the input is the first row of the output, the second column the second row, and so on.
    - So the output is the transpose of the input.
    Procedure:
    1. For each column of the input, collect its cells from top to bottom.
    2. Each of these lists is one row of the output.
    """
    width = len(input_grid[0])
    result = []
    for col in range(width):
        result.append([row[col] for row in input_grid])
    return result
