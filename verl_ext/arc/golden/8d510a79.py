def solve(input_grid):
    """
    Observations:
    - A line of 5 divides the grid into an upper and a lower half, with cells of 1 and 2 in both.
    - In the output each 2 has grown into a line toward the 5.
    - Each 1 has grown into a line away from it, to the edge of the grid.
    Procedure:
    1. Find the row of 5.
    2. From each 2 go toward it, and from each 1 away from it.
    3. Write the colour until the row of 5 or the edge comes.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    line = next(r for r in range(height) if set(input_grid[r]) == {5})
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            colour = input_grid[row][col]
            if colour not in (1, 2):
                continue
            toward = 1 if row < line else -1
            step = toward if colour == 2 else -toward
            r = row
            while 0 <= r < height and r != line:
                result[r][col] = colour
                r += step
    return result
