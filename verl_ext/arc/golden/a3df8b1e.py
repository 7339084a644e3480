def solve(input_grid):
    """
    Observations:
    - The input is empty but for a 1 in the bottom left corner.
    - In the output each row has one cell of colour 1.
    - From the bottom upwards it moves one column to the right in each row.
    - At the right edge it turns round, at the left edge again: it bounces between the edges.
    Procedure:
    1. Start in the bottom row, in the first column, moving right.
    2. Write 1, then turn if the next column would be outside.
    3. Move one column and go to the row above.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * width for _ in range(height)]
    col = 0
    step = 1
    for row in range(height - 1, -1, -1):
        result[row][col] = 1
        if not 0 <= col + step < width:
            step = -step
        col += step
    return result
