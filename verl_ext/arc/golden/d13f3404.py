def solve(input_grid):
    """
    Observations:
    - The output is twice as tall and twice as wide as the input, whose cells are at its top left.
    - Every coloured cell draws a line of its colour to the lower right, down to the edge of the output.
    - Other cells are 0.
    Procedure:
    1. Make an empty grid of twice the height and width.
    2. For each coloured cell, step down and right together, and write the colour.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * (2 * width) for _ in range(2 * height)]
    for row in range(height):
        for col in range(width):
            colour = input_grid[row][col]
            r, c = row, col
            while colour != 0 and r < 2 * height and c < 2 * width:
                result[r][c] = colour
                r += 1
                c += 1
    return result
