def solve(input_grid):
    """
    Observations:
    - One row or one column of the 3 by 3 input has a single colour.
    - The output is three times as wide and high.
    - If it is a row, three copies of the input stand beside each other in the part of the output at this row.
    - If it is a column, three copies stand below each other at this column.
    Procedure:
    1. Look for a row of a single colour, then for a column.
    2. Copy the input three times to the parts that it points to.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    parts = []
    for r in range(height):
        if len(set(input_grid[r])) == 1:
            parts = [(r, c) for c in range(width)]
    for c in range(width):
        if len({row[c] for row in input_grid}) == 1:
            parts = [(r, c) for r in range(height)]
    result = [[0] * (width * width) for _ in range(height * height)]
    for row, col in parts:
        for r in range(height):
            for c in range(width):
                result[row * height + r][col * width + c] = input_grid[r][c]
    return result
