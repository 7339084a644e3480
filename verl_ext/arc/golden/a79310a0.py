def solve(input_grid):
    """
    Observations:
    - The input has one shape in colour 8 on a ground of 0.
    - In the output the shape is one row further down.
    - Its colour is now 2; nothing else is in the output.
    Procedure:
    1. Start with an empty grid of the same size.
    2. For each 8 of the input, write 2 in the cell below it.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * width for _ in range(height)]
    for row in range(height - 1):
        for col in range(width):
            if input_grid[row][col] == 8:
                result[row + 1][col] = 2
    return result
