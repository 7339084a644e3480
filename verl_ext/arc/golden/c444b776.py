def solve(input_grid):
    """
    Observations:
    - Lines of 4 divide the grid into equal parts, and one part has coloured cells.
    - In the output every part has them, at the same places.
    - The lines stay.
    Procedure:
    1. Find the rows and columns that are lines, and the part with colours.
    2. Copy its cells to all other parts.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    rows = [-1] + [r for r in range(height) if set(input_grid[r]) == {4}] + [height]
    cols = [-1] + [c for c in range(width) if {row[c] for row in input_grid} == {4}] + [width]
    corners = []
    for top in rows[:-1]:
        for left in cols[:-1]:
            corners.append((top + 1, left + 1))
    part_height = rows[1] - rows[0] - 1
    part_width = cols[1] - cols[0] - 1
    picture = []
    for top, left in corners:
        part = [row[left : left + part_width] for row in input_grid[top : top + part_height]]
        if any(cell for row in part for cell in row):
            picture = part
    result = [list(row) for row in input_grid]
    for top, left in corners:
        for r in range(part_height):
            for c in range(part_width):
                result[top + r][left + c] = picture[r][c]
    return result
