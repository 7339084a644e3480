def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input.
    - Each coloured cell flows down its column to the bottom edge.
    - A coloured cell further down stops the flow and goes on with its own colour.
    Procedure:
    1. Copy the grid.
    2. Go through the rows from the second to the last.
    3. Wherever a cell is 0, take the colour of the cell above it.
    """
    result = [list(row) for row in input_grid]
    for row in range(1, len(result)):
        for col in range(len(result[0])):
            if result[row][col] == 0:
                result[row][col] = result[row - 1][col]
    return result
