def solve(input_grid):
    """
    Observations:
    - The input has a triangle in one colour, with a single cell of another colour in the middle of its base.
    - The triangle points up, down, left or right.
    - In the output a line in the colour of the single cell starts at the tip and goes on to the edge of the grid.
    - The line points away from the base; the triangle is unchanged.
    Procedure:
    1. Find the single cell: its colour is the rarest one besides 0.
    2. Find the direction in which its neighbour is coloured, while the opposite neighbour is empty or outside.
    3. Walk in this direction to the edge, and write the colour in each empty cell.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    cells = [cell for row in input_grid for cell in row if cell != 0]
    colour = min(set(cells), key=cells.count)
    result = [list(row) for row in input_grid]

    def get(r, c):
        return input_grid[r][c] if 0 <= r < height and 0 <= c < width else 0

    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != colour:
                continue
            for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                if get(row + down, col + right) == 0 or get(row - down, col - right) != 0:
                    continue
                r, c = row, col
                while 0 <= r < height and 0 <= c < width:
                    if result[r][c] == 0:
                        result[r][c] = colour
                    r += down
                    c += right
    return result
