def solve(input_grid):
    """
    Observations:
    - Bars of 5 of different lengths stand on the lowest row.
    - In the output the longest is 1, the next 2, and so on.
    - Their places and lengths stay.
    Procedure:
    1. Count the cells of each column that has a bar.
    2. Sort these columns by their count, the largest first.
    3. The place in this order, counted from 1, is the colour of the bar.
    """
    width = len(input_grid[0])
    lengths = {}
    for c in range(width):
        length = sum(row[c] == 5 for row in input_grid)
        if length:
            lengths[c] = length
    order = sorted(lengths, key=lambda c: -lengths[c])
    result = []
    for row in input_grid:
        cells = []
        for c, cell in enumerate(row):
            cells.append(order.index(c) + 1 if cell == 5 else 0)
        result.append(cells)
    return result
