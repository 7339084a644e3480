def solve(input_grid):
    """
    Observations:
    - The lowest row has one coloured cell; everything else is empty.
    - In the output its column and every second column to the right of it have this colour.
    - Between them is a 5, by turns at the top and at the bottom, beginning at the top.
    Procedure:
    1. Go through the columns from the coloured cell's to the right edge.
    2. At an even distance fill the column.
    3. At an odd distance write 5: at the top for the distances 1, 5, 9 and so on, else at the bottom.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    start = next(c for c in range(width) if input_grid[-1][c])
    colour = input_grid[-1][start]
    result = [[0] * width for _ in range(height)]
    for c in range(start, width):
        distance = c - start
        if distance % 2 == 0:
            for r in range(height):
                result[r][c] = colour
        elif distance % 4 == 1:
            result[0][c] = 5
        else:
            result[-1][c] = 5
    return result
