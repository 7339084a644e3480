def solve(input_grid):
    """
    Observations:
    - The input has single cells of the colours 1, 2 and possibly others.
    - In the output each 1 has a 7 above, below, left and right.
    - Each 2 has a 4 at its four diagonal neighbours, and cells of other colours stay as they are.
    Procedure:
    1. Go through all cells.
    2. For a 1 write 7 at its four neighbours at a side.
    3. For a 2 write 4 at its four neighbours at a corner.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] == 1:
                colour = 7
                steps = ((-1, 0), (1, 0), (0, -1), (0, 1))
            elif input_grid[row][col] == 2:
                colour = 4
                steps = ((-1, -1), (-1, 1), (1, -1), (1, 1))
            else:
                continue
            # Steps that lead out of the grid are left out.
            for down, right in steps:
                r = row + down
                c = col + right
                if 0 <= r < height and 0 <= c < width:
                    result[r][c] = colour
    return result
