def solve(input_grid):
    """
    Observations:
    - The input consists of bands of different colours, side by side or one above the other.
    - In the bands there are single cells of 0.
    - Each of them becomes a line of 0 that cuts through the whole band, from one neighbouring band to the other.
    - So the line is level if the bands are side by side, and upright otherwise.
    Procedure:
    1. If the bands are one above the other, exchange rows and columns, so that they are side by side.
    2. The band of a column is given by the most frequent colour of the column.
    3. From each 0, go to the left and to the right as long as the columns belong to the same band, and write 0.
    4. Exchange rows and columns again if it was done before.
    """
    grid = [list(row) for row in input_grid]
    stacked = len(set(grid[0]) - {0}) == 1
    if stacked:
        grid = [list(column) for column in zip(*grid)]
    width = len(grid[0])
    bands = []
    for column in zip(*grid):
        bands.append(max(column, key=column.count))
    result = [list(row) for row in grid]
    for r, row in enumerate(grid):
        for c, color in enumerate(row):
            if color != 0:
                continue
            left = right = c
            while left > 0 and bands[left - 1] == bands[c]:
                left -= 1
            while right < width - 1 and bands[right + 1] == bands[c]:
                right += 1
            for x in range(left, right + 1):
                result[r][x] = 0
    if stacked:
        result = [list(column) for column in zip(*result)]
    return result
