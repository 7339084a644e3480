def solve(input_grid):
    """
    Observations:
    - The output is as many times as wide and high as the input as the input has cells in a direction.
    - The part of the output at the place of a cell shows where the input has the colour of this cell.
    - All other cells of the part are empty.
    Procedure:
    1. Go through the cells of the input.
    2. In the part of a cell write its colour wherever the input has it.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * (width * width) for _ in range(height * height)]
    for row in range(height):
        for col in range(width):
            colour = input_grid[row][col]
            for r in range(height):
                for c in range(width):
                    if input_grid[r][c] == colour:
                        result[row * height + r][col * width + c] = colour
    return result
