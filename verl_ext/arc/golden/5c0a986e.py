def solve(input_grid):
    """
    Observations:
    - The input has a 2 by 2 square of 1 and one of 2.
    - In the output a diagonal line goes from the upper left corner of the square of 1 to the edge, up and to the left.
    - Another goes from the lower right corner of the square of 2, down and to the right.
    Procedure:
    1. Find the first cell of the square of 1 and the last one of the square of 2.
    2. Go diagonally away from them to the edge, and write the colour.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    ones = []
    twos = []
    for r in range(height):
        for c in range(width):
            if input_grid[r][c] == 1:
                ones.append((r, c))
            elif input_grid[r][c] == 2:
                twos.append((r, c))
    result = [list(row) for row in input_grid]
    r, c = min(ones)
    while r >= 0 and c >= 0:
        result[r][c] = 1
        r -= 1
        c -= 1
    r, c = max(twos)
    while r < height and c < width:
        result[r][c] = 2
        r += 1
        c += 1
    return result
