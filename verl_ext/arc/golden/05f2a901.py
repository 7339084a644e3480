def solve(input_grid):
    """
    Observations:
    - The input has a shape of 2 and a 2 by 2 square of 8.
    - In the output the shape has moved straight toward the square until they touch.
    - The square stays.
    Procedure:
    1. If the two have columns in common, the shape moves up or down, otherwise sideways.
    2. Move it by one step as long as it does not meet the square.
    3. Draw both.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    shape = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 2]
    square = {(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 8}
    row, col = min(square)
    down = 0
    right = 0
    if {c for r, c in shape} & {c for r, c in square}:
        down = 1 if row > shape[0][0] else -1
    else:
        right = 1 if col > max(c for r, c in shape) else -1
    moved = shape
    while True:
        further = [(r + down, c + right) for r, c in moved]
        if square & set(further):
            break
        moved = further
    result = [[0] * width for _ in range(height)]
    for r, c in square:
        result[r][c] = 8
    for r, c in moved:
        result[r][c] = 2
    return result
