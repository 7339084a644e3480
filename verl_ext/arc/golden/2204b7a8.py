def solve(input_grid):
    """
    Observations:
    - Two opposite edges of the grid are lines of two different colours.
    - Between them there are single cells of colour 3.
    - Each 3 takes the colour of the nearer line.
    Procedure:
    1. The lines are upright if the whole first column has one colour, otherwise they are level.
    2. For each 3, measure how far it is from the first and from the last line.
    3. Write the colour of the nearer line.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    first_column = {row[0] for row in input_grid}
    upright = len(first_column) == 1 and 0 not in first_column
    first_color = input_grid[0][0]
    last_color = input_grid[-1][-1]
    result = [list(row) for row in input_grid]
    for r in range(height):
        for c in range(width):
            if input_grid[r][c] != 3:
                continue
            if upright:
                to_first, to_last = c, width - 1 - c
            else:
                to_first, to_last = r, height - 1 - r
            result[r][c] = first_color if to_first < to_last else last_color
    return result
