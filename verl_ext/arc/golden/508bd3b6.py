def solve(input_grid):
    """
    Observations:
    - The input has a wall of colour 2 along one edge and a short diagonal line of colour 8.
    - In the output the line goes on in colour 3 until it meets the wall.
    - There it bounces off like a ball, and goes on until it leaves the grid.
    Procedure:
    1. Find the first and the last cell of colour 8: the line goes on behind both of them.
    2. From each end, go on diagonally away from the other end.
    3. If the cell in front is the wall, turn round the direction that leads into it.
    4. Write 3 in each cell, and stop outside the grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    line = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 8]
    first, last = line[0], line[-1]
    side = 1 if last[1] > first[1] else -1
    result = [list(row) for row in input_grid]
    for (r, c), down, over in ((first, -1, -side), (last, 1, side)):
        while 0 <= r + down < height and 0 <= c + over < width:
            if input_grid[r + down][c] == 2:
                down = -down
            elif input_grid[r][c + over] == 2:
                over = -over
            else:
                r, c = r + down, c + over
                result[r][c] = 3
    return result
