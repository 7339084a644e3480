def solve(input_grid):
    """
    Observations:
    - The input has single cells of colour 8.
    - In the output two of them in the same row or in the same column are joined by a line of 3.
    - Those without a partner stay as they are.
    Procedure:
    1. For each 8 find the next one to its right and the next one below it.
    2. Write 3 at the cells between them.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 8:
                continue
            for down, right in ((0, 1), (1, 0)):
                way = []
                r = row + down
                c = col + right
                while r < height and c < width and input_grid[r][c] != 8:
                    way.append((r, c))
                    r += down
                    c += right
                # The walk has met another 8 unless it has left the grid.
                if r < height and c < width:
                    for y, x in way:
                        result[y][x] = 3
    return result
