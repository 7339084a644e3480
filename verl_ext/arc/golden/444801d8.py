def solve(input_grid):
    """
    Observations:
    - The input has boxes of colour 1 that are open in the middle of the top side; each box holds one coloured cell.
    - In the output the colour fills the inside of the box and the opening.
    - The row above the box has the colour over the whole width of the box.
    Procedure:
    1. For each cell that is neither 0 nor 1, walk up to the row of the opening: the row with two 1 beside it.
    2. Walk to the left and to the right in that row, to find the sides of the box.
    3. Fill the row above the box over its whole width.
    4. Fill the cells of 0 from the top of the box down to its floor.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(width):
            color = input_grid[row][col]
            if color in (0, 1):
                continue
            top = row
            while not input_grid[top][col - 1] == input_grid[top][col + 1] == 1:
                top -= 1
            left = right = col
            while left > 0 and input_grid[top][left - 1] == 1:
                left -= 1
            while right < width - 1 and input_grid[top][right + 1] == 1:
                right += 1
            for c in range(left, right + 1):
                result[top - 1][c] = color
            r = top
            while input_grid[r][col] != 1:
                for c in range(left, right + 1):
                    if input_grid[r][c] == 0:
                        result[r][c] = color
                r += 1
    return result
