def solve(input_grid):
    """
    Observations:
    - The first row has the colours; the second row is a line of 5; all further rows are 0.
    - In the output the first two rows are unchanged.
    - Each row below has one colour: the colours of the first row, from left to right.
    - When they are used up, they start again from the left, down to the last row.
    Procedure:
    1. Copy the first two rows.
    2. Fill each further row with the next colour of the first row, in a cycle.
    """
    width = len(input_grid[0])
    colours = input_grid[0]
    result = [list(row) for row in input_grid[:2]]
    for step in range(len(input_grid) - 2):
        colour = colours[step % width]
        result.append([colour] * width)
    return result
