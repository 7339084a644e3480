def solve(input_grid):
    """
    Observations:
    - The input has one 2 by 2 square of 3 and single cells of other colours.
    - In the output a cell that is in a row or a column of the square is joined to it by a line of its colour.
    - A cell with another one between it and the square is not joined.
    Procedure:
    1. Find the rows and columns of the square.
    2. From each side of the square go outwards in these rows and columns until a coloured cell comes.
    3. If there is one, fill the way to it with its colour.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    square = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 3]
    result = [list(row) for row in input_grid]
    for row, col in square:
        for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            way = []
            r = row + down
            c = col + right
            while 0 <= r < height and 0 <= c < width and input_grid[r][c] == 0:
                way.append((r, c))
                r += down
                c += right
            if not (0 <= r < height and 0 <= c < width):
                continue
            # Another cell of the square, or the one to be joined.
            if input_grid[r][c] != 3:
                for y, x in way:
                    result[y][x] = input_grid[r][c]
    return result
