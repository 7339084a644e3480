def solve(input_grid):
    """
    Observations:
    - The input has a cross of lines over the whole grid, and some 5 in the upper right corner.
    - In the output the 5 are gone, and the cross has moved.
    - For each 5 its vertical line has moved one column to the left, and its horizontal line one row down.
    Procedure:
    1. Count the 5.
    2. Find the row and the column of the cross, and its colour.
    3. Draw the cross so many rows further down and columns further left.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    count = sum(row.count(5) for row in input_grid)
    colour = next(cell for row in input_grid for cell in row if cell not in (0, 5))
    row = 0
    col = 0
    for r in range(height):
        if all(cell == colour for cell in input_grid[r]):
            row = r
    for c in range(width):
        if all(line[c] == colour for line in input_grid):
            col = c
    # The last cells of a column or row may be covered by nothing but the cross itself.
    result = []
    for r in range(height):
        line = []
        for c in range(width):
            on_cross = r == row + count or c == col - count
            line.append(colour if on_cross else 0)
        result.append(line)
    return result
