def solve(input_grid):
    """
    Observations:
    - The input has shapes of 2 and 3, and some of them are 2 by 2 squares.
    - Only the squares of colour 3 count.
    - The output is 3 by 3 and has so many 1 along its diagonal, from the upper left.
    Procedure:
    1. Go through all places of a 2 by 2 square.
    2. Count those with four 3.
    3. Write so many 1 on the diagonal.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    count = 0
    for r in range(height - 1):
        for c in range(width - 1):
            upper = input_grid[r][c : c + 2]
            lower = input_grid[r + 1][c : c + 2]
            if set(upper) | set(lower) == {3}:
                count += 1
    result = [[0] * 3 for _ in range(3)]
    for i in range(count):
        result[i][i] = 1
    return result
