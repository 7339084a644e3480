def solve(input_grid):
    """
    Observations:
    - The input has frames at its right and lower edge and a square of one colour.
    - The number of colours, the square's included, is the factor of enlargement.
    - In the output every cell is a square of factor by factor cells.
    - Diagonal lines of 2 begin at the corners of the enlarged square and lead outwards through empty cells.
    Procedure:
    1. The square is in the part that is not the frame: its colour is not in the last row or column.
    2. Count the colours of the frame, add one for the square, and enlarge the grid.
    3. From each corner of the square go diagonally outwards and write 2 while the cells are empty.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    frame = set(input_grid[-1]) | {row[-1] for row in input_grid}
    square = next(cell for row in input_grid for cell in row if cell and cell not in frame)
    factor = len(frame) + 1
    result = []
    for row in input_grid:
        for _ in range(factor):
            result.append([cell for cell in row for _ in range(factor)])
    places = [(r, c) for r, row in enumerate(result) for c, cell in enumerate(row) if cell == square]
    top, left = min(places)
    bottom, right = max(places)
    upper = ((top, left, -1, -1), (top, right, -1, 1))
    lower = ((bottom, left, 1, -1), (bottom, right, 1, 1))
    for row, col, down, across in upper + lower:
        r = row + down
        c = col + across
        while 0 <= r < height * factor and 0 <= c < width * factor and result[r][c] == 0:
            result[r][c] = 2
            r += down
            c += across
    return result
