def solve(input_grid):
    """
    Observations:
    - The input has one row that starts with some cells of colour 2.
    - In the output this row is unchanged.
    - Rows above it start with cells of colour 3; each row upwards has one more of them.
    - Rows below it start with cells of colour 1; each row downwards has one less of them.
    Procedure:
    1. Find the row and the number of its cells of colour 2.
    2. For every row, the count is this number plus its distance above the line, or minus its distance below it.
    3. Fill this many cells from the left, never less than none.
    """
    width = len(input_grid[0])
    for r, row in enumerate(input_grid):
        if 2 in row:
            line = r
            length = row.count(2)
    result = []
    for r in range(len(input_grid)):
        count = max(0, length + line - r)
        if r < line:
            colour = 3
        elif r == line:
            colour = 2
        else:
            colour = 1
        result.append([colour] * count + [0] * (width - count))
    return result
