def solve(input_grid):
    """
    Observations:
    - The input is a single row of five cells, some of them coloured.
    - The output is a square whose side is five times the number of coloured cells.
    - Each coloured cell begins a diagonal in its colour, from its place in the lowest row up to the right.
    Procedure:
    1. Count the coloured cells: the side is the count times the length of the row.
    2. For each of them go from its column in the lowest row up and right.
    3. Write its colour until the square ends.
    """
    row = input_grid[0]
    count = sum(cell != 0 for cell in row)
    side = count * len(row)
    result = [[0] * side for _ in range(side)]
    for start, cell in enumerate(row):
        if cell == 0:
            continue
        r = side - 1
        c = start
        while r >= 0 and c < side:
            result[r][c] = cell
            r -= 1
            c += 1
    return result
