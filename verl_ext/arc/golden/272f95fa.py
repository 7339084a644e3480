def solve(input_grid):
    """
    Observations:
    - Two level and two upright lines of colour 8 cut the grid into nine areas of 0.
    - The area in the middle becomes 6, the one above it 2, the one below it 1.
    - The area on the left of the middle becomes 4, the one on the right 3.
    - The lines and the four areas in the corners stay.
    Procedure:
    1. Find the rows and the columns that are lines.
    2. For each cell of 0, count the lines above it and the lines on its left: this gives its area.
    3. Write the colour of the area if it has one.
    """
    line_rows = [r for r, row in enumerate(input_grid) if set(row) == {8}]
    line_cols = [c for c, column in enumerate(zip(*input_grid)) if set(column) == {8}]
    colors = {}
    colors[0, 1] = 2
    colors[1, 0] = 4
    colors[1, 1] = 6
    colors[1, 2] = 3
    colors[2, 1] = 1
    result = []
    for r, cells in enumerate(input_grid):
        row = []
        for c, color in enumerate(cells):
            area_row = sum(1 for line in line_rows if line < r)
            area_col = sum(1 for line in line_cols if line < c)
            if color == 8:
                row.append(8)
            else:
                row.append(colors.get((area_row, area_col), 0))
        result.append(row)
    return result
