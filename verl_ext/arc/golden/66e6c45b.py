def solve(input_grid):
    """
    Observations:
    - The input is 4 by 4 with a 2 by 2 square of four colours in its middle.
    - In the output each of these cells has moved to the nearest corner of the grid.
    - All else is empty.
    Procedure:
    1. Each cell of the square goes one step up or down and one to the left or right, away from the middle.
    2. Write the colours at the corners of an empty grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * width for _ in range(height)]
    for r in range(height):
        for c in range(width):
            if input_grid[r][c]:
                row = 0 if r < height // 2 else height - 1
                col = 0 if c < width // 2 else width - 1
                result[row][col] = input_grid[r][c]
    return result
