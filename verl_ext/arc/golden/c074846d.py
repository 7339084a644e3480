def solve(input_grid):
    """
    Observations:
    - The input has a 5 with an arm of 2 at one side.
    - In the output the arm has become 3.
    - A new arm of 2, of the same length, leaves the 5 a quarter turn clockwise from the old one.
    Procedure:
    1. Find the 5 and the cells of the arm.
    2. Write 3 instead of 2.
    3. Turn each cell of the arm clockwise around the 5, and write 2 there if it is in the grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    row = 0
    col = 0
    arm = []
    for r, line in enumerate(input_grid):
        for c, cell in enumerate(line):
            if cell == 5:
                row, col = r, c
            elif cell == 2:
                arm.append((r, c))
    result = [list(line) for line in input_grid]
    for r, c in arm:
        result[r][c] = 3
    for r, c in arm:
        # A quarter turn clockwise: what was above is to the right now.
        y = row + (c - col)
        x = col - (r - row)
        if 0 <= y < height and 0 <= x < width:
            result[y][x] = 2
    return result
