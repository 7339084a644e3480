def solve(input_grid):
    """
    Observations:
    - The input has a 2 by 2 square with one or more tails: single cells of the same colour at its corners.
    - In the output every tail is a diagonal line that goes on to the edge of the grid.
    Procedure:
    1. Find the square.
    2. A coloured cell diagonally next to a corner of the square is the beginning of a tail.
    3. Go on from it in this direction to the edge, and write the colour.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    row = 0
    col = 0
    for r in range(height - 1):
        for c in range(width - 1):
            square = (input_grid[r][c], input_grid[r][c + 1], input_grid[r + 1][c], input_grid[r + 1][c + 1])
            if 0 not in square:
                row, col = r, c
    colour = input_grid[row][col]
    result = [list(line) for line in input_grid]
    for down in (-1, 1):
        for right in (-1, 1):
            r = row - 1 if down < 0 else row + 2
            c = col - 1 if right < 0 else col + 2
            if not (0 <= r < height and 0 <= c < width) or input_grid[r][c] == 0:
                continue
            while 0 <= r < height and 0 <= c < width:
                result[r][c] = colour
                r += down
                c += right
    return result
