def solve(input_grid):
    """
    Observations:
    - Vertical bars of 8 and 2 stand on the lowest row, and all else is 7.
    - In the output there is another bar, of 5, two columns to the right of the last one.
    - Its height is the height of all bars of 8 together minus that of all bars of 2.
    Procedure:
    1. Count the cells of 8 and of 2.
    2. Find the last column with a bar.
    3. Write as many 5 as the difference says, from the lowest row upwards.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    eights = sum(row.count(8) for row in input_grid)
    twos = sum(row.count(2) for row in input_grid)
    last = 0
    for c in range(width):
        for row in input_grid:
            if row[c] in (8, 2):
                last = c
    result = [list(row) for row in input_grid]
    for step in range(eights - twos):
        result[height - 1 - step][last + 2] = 5
    return result
