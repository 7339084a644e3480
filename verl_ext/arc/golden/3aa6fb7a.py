def solve(input_grid):
    """
    Observations:
    - The input has corners of three cells of colour 8.
    - Each of them leaves one cell of its 2 by 2 square empty.
    - The output has a 1 there.
    Procedure:
    1. Go through all 2 by 2 squares.
    2. If three of the four cells are 8, write 1 at the fourth.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for r in range(height - 1):
        for c in range(width - 1):
            places = [(r, c), (r, c + 1), (r + 1, c), (r + 1, c + 1)]
            empty = [(y, x) for y, x in places if input_grid[y][x] != 8]
            if len(empty) == 1:
                y, x = empty[0]
                result[y][x] = 1
    return result
