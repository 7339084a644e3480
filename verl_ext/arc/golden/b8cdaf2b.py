def solve(input_grid):
    """
    Observations:
    - The lowest row is full: a block of another colour stands in its middle.
    - The row above it has a shorter block, and everything else is empty.
    - In the output two lines in the colour of the middle block go up, one to the left and one to the right.
    - They begin diagonally above the ends of the upper block and run to the edge.
    Procedure:
    1. Take the colour in the middle of the lowest row.
    2. Find the first and last filled cell of the row above it.
    3. Go diagonally up and outwards from each of them, and write the colour until the grid ends.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    colour = input_grid[-1][width // 2]
    filled = [c for c in range(width) if input_grid[height - 2][c]]
    result = [list(row) for row in input_grid]
    for start, step in ((filled[0], -1), (filled[-1], 1)):
        r = height - 3
        c = start + step
        while r >= 0 and 0 <= c < width:
            result[r][c] = colour
            r -= 1
            c += step
    return result
