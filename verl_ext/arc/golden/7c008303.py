def solve(input_grid):
    """
    Observations:
    - Lines of 8 divide the grid into a 2 by 2 square of colours and three other parts.
    - The large 6 by 6 part has a picture of 3.
    - In the output each quarter of the picture has the colour of the same quarter of the small square.
    Procedure:
    1. Find the row and the column that are 8 throughout, or as far as the grid's lines go.
    2. Tell the large part from the small one by their sizes.
    3. Write in each 3 by 3 quarter of the picture the colour of the square instead of 3.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    line = next(r for r in range(height) if set(input_grid[r]) == {8})
    column = next(c for c in range(width) if all(row[c] == 8 for row in input_grid))
    row_parts = (range(0, line), range(line + 1, height))
    col_parts = (range(0, column), range(column + 1, width))
    big_rows = max(row_parts, key=len)
    big_cols = max(col_parts, key=len)
    small_rows = min(row_parts, key=len)
    small_cols = min(col_parts, key=len)
    colours = [[input_grid[r][c] for c in small_cols] for r in small_rows]
    half = len(big_rows) // 2
    result = []
    for r in range(len(big_rows)):
        row = []
        for c in range(len(big_cols)):
            cell = input_grid[big_rows[r]][big_cols[c]]
            row.append(colours[r // half][c // half] if cell else 0)
        result.append(row)
    return result
