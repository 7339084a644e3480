def solve(input_grid):
    """
    Observations:
    - The input has a vertical line of 7 that starts at the top.
    - In the output columns at both sides hang from the top, as far as the edges of the grid.
    - Each step away from the line, the column is one cell shorter.
    - The colours of the columns alternate: 7 for the line, 8 beside it, then 7 again.
    Procedure:
    1. Find the column and the length of the line.
    2. For each column take its distance from the line; its length is the length of the line minus the distance.
    3. Fill it from the top with 7 for an even distance, and with 8 for an odd one.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    line = input_grid[0].index(7)
    length = sum(1 for row in input_grid if row[line] == 7)
    result = [[0] * width for _ in range(height)]
    for col in range(width):
        distance = abs(col - line)
        colour = 7 if distance % 2 == 0 else 8
        for row in range(length - distance):
            result[row][col] = colour
    return result
