def solve(input_grid):
    """
    Observations:
    - The input has 2 by 2 squares of 1 and of 2, and single cells.
    - Only the squares of 1 count.
    - The output is one row of five cells that begins with so many 1.
    Procedure:
    1. Go through all places where a 2 by 2 square can begin.
    2. Count those with four 1.
    3. Write so many 1, and fill the row with 0.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    count = 0
    for r in range(height - 1):
        for c in range(width - 1):
            square = [input_grid[r][c], input_grid[r][c + 1], input_grid[r + 1][c], input_grid[r + 1][c + 1]]
            if set(square) == {1}:
                count += 1
    result = [[1] * count + [0] * (5 - count)]
    return result
