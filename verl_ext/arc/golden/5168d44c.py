def solve(input_grid):
    """
    Observations:
    - A 3 by 3 ring of 2 is around one of several cells of colour 3 that stand in a line with gaps of one cell.
    - In the output the ring has moved along the line by two cells, around the next 3.
    - It moves to the right if the line is horizontal, and down if it is vertical.
    Procedure:
    1. Find the cells of colour 3 and those of the ring.
    2. If all 3 are in one row, the ring moves two columns to the right, else two rows down.
    3. Draw the cells of colour 3 and the moved ring.
    """
    threes = []
    ring = []
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 3:
                threes.append((r, c))
            elif cell == 2:
                ring.append((r, c))
    if len({r for r, c in threes}) == 1:
        down, right = 0, 2
    else:
        down, right = 2, 0
    result = [[0] * len(row) for row in input_grid]
    for r, c in threes:
        result[r][c] = 3
    for r, c in ring:
        result[r + down][c + right] = 2
    return result
