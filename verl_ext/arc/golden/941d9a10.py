def solve(input_grid):
    """
    Observations:
    - Lines of 5 divide the grid into rectangles.
    - In the output the first rectangle, at the upper left, is 1, and the last one, at the lower right, is 3.
    - The one in the middle is 2; all others stay empty.
    Procedure:
    1. Find the rows and columns of the lines, and the ranges between them.
    2. The middle range is the one with as many before it as behind it.
    3. Fill the three rectangles.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    lines = [-1] + [r for r in range(height) if set(input_grid[r]) == {5}] + [height]
    columns = [-1] + [c for c in range(width) if {row[c] for row in input_grid} == {5}] + [width]
    row_parts = []
    for top, bottom in zip(lines, lines[1:]):
        row_parts.append(range(top + 1, bottom))
    col_parts = []
    for left, right in zip(columns, columns[1:]):
        col_parts.append(range(left + 1, right))
    chosen = (
        (row_parts[0], col_parts[0]),
        (row_parts[len(row_parts) // 2], col_parts[len(col_parts) // 2]),
        (row_parts[-1], col_parts[-1]),
    )
    result = [list(row) for row in input_grid]
    for colour, (rows, cols) in enumerate(chosen, 1):
        for r in rows:
            for c in cols:
                result[r][c] = colour
    return result
