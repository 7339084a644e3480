def solve(input_grid):
    """
    Observations:
    - Lines of 5 divide the grid into nine squares with cells of several colours.
    - One square has a 4.
    - In the output only one square has anything: a copy of the square with the 4.
    - Its place among the nine squares is that of the 4 in its square.
    Procedure:
    1. Find the square with the 4.
    2. The place of the 4 in it is the number of the square to be filled.
    3. Copy the cells, and clear all other squares.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    rows = [-1] + [r for r in range(height) if set(input_grid[r]) == {5}] + [height]
    cols = [-1] + [c for c in range(width) if {row[c] for row in input_grid} == {5}] + [width]
    sections = []
    for top, bottom in zip(rows, rows[1:]):
        for left, right in zip(cols, cols[1:]):
            sections.append([(r, c) for r in range(top + 1, bottom) for c in range(left + 1, right)])
    source = next(section for section in sections if any(input_grid[r][c] == 4 for r, c in section))
    number = next(i for i, (r, c) in enumerate(source) if input_grid[r][c] == 4)
    result = [list(row) for row in input_grid]
    for section in sections:
        for r, c in section:
            result[r][c] = 0
    for (r, c), (y, x) in zip(source, sections[number]):
        result[y][x] = input_grid[r][c]
    return result
