def solve(input_grid):
    """
    Observations:
    - The input has a 2 by 2 square of 8 and four single cells around it.
    - In the output the cells are gone.
    - Each cell of the square has the colour of the single cell that lies in its direction.
    Procedure:
    1. Find the upper left cell of the square.
    2. A single cell is above or below, and left or right, of the middle of the square.
    3. Write its colour at the cell of the square on the same side.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    square = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 8]
    top = min(r for r, c in square)
    left = min(c for r, c in square)
    result = [[0] * width for _ in range(height)]
    for r in range(height):
        for c in range(width):
            if input_grid[r][c] in (0, 8):
                continue
            row = top if r <= top else top + 1
            col = left if c <= left else left + 1
            result[row][col] = input_grid[r][c]
    return result
