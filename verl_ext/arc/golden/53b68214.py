def solve(input_grid):
    """
    Observations:
    - The input has a pattern that goes on downwards; the grid is too low for it.
    - The output is a square of the same width that continues the pattern.
    - The pattern repeats after some rows, in some examples shifted to the side each time.
    - What leaves the grid at the side is cut off.
    Procedure:
    1. For each period and each shift, the smallest first, test all rows of the input.
    2. A row has to be equal to the row one period above, shifted to the side.
    3. Append rows by this rule until the grid is a square.
    """
    height = len(input_grid)
    width = len(input_grid[0])

    def shifted(row, shift):
        return [row[c - shift] if 0 <= c - shift < width else 0 for c in range(width)]

    found = None
    for period in range(1, height):
        for shift in sorted(range(1 - width, width), key=abs):
            pairs = zip(input_grid, input_grid[period:])
            if found is None and all(shifted(above, shift) == below for above, below in pairs):
                found = (period, shift)
    period, shift = found
    result = [list(row) for row in input_grid]
    while len(result) < width:
        result.append(shifted(result[-period], shift))
    return result
