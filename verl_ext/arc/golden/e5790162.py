def solve(input_grid):
    """
    Observations:
    - The input has a 3 in the left column, and cells of colour 6 and 8.
    - In the output a path of 3 begins there and goes to the right.
    - Before a 6 it turns right, seen in its direction; before an 8 it turns left.
    - It ends at the edge of the grid.
    Procedure:
    1. Start at the 3 in the direction to the right.
    2. If the next cell is 6 or 8, turn.
    3. Otherwise step on and write 3, until the next cell is outside the grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    r, c = next((r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 3)
    down = 0
    right = 1
    result = [list(row) for row in input_grid]
    while True:
        y = r + down
        x = c + right
        if not (0 <= y < height and 0 <= x < width):
            break
        if input_grid[y][x] == 6:
            # A turn to the right: from right to down, from down to left.
            down, right = right, -down
        elif input_grid[y][x] == 8:
            down, right = -right, down
        else:
            r, c = y, x
            result[r][c] = 3
    return result
