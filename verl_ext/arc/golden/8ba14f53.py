def solve(input_grid):
    """
    Observations:
    - The input has two frames in different colours, side by side.
    - What counts is how many empty cells each of them encloses.
    - The output is 3 by 3: it has so many cells in the colour of the left frame, row by row.
    - Those of the right frame begin in the next row.
    Procedure:
    1. Find the colours of both frames from left to right, and the columns of each.
    2. The enclosed cells of a frame are the empty ones between its first and last cell in a row.
    3. Write as many cells of its colour, three in a row; begin a new row for each frame.
    """
    width = len(input_grid[0])
    colours = []
    for c in range(width):
        for row in input_grid:
            if row[c] and row[c] not in colours:
                colours.append(row[c])
    result = []
    for colour in colours:
        count = 0
        for row in input_grid:
            cols = [c for c, cell in enumerate(row) if cell == colour]
            if cols:
                count += sum(cell == 0 for cell in row[min(cols) : max(cols) + 1])
        # Three cells to a row, the last one filled up with zeros.
        while count > 0:
            filled = min(count, 3)
            result.append([colour] * filled + [0] * (3 - filled))
            count -= filled
    while len(result) < 3:
        result.append([0] * 3)
    return result
