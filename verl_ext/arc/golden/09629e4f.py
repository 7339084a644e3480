def solve(input_grid):
    """
    Observations:
    - Lines of 5 divide the grid into nine 3 by 3 squares with coloured cells.
    - One square has fewer colours than the others.
    - In the output every square is filled with the colour that this square has at the same place among its cells.
    Procedure:
    1. Count the coloured cells of each square.
    2. Take the square with the fewest.
    3. Fill the first square with its first cell, the second with its second, and so on.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    rows = [-1] + [r for r in range(height) if set(input_grid[r]) == {5}] + [height]
    cols = [-1] + [c for c in range(width) if {row[c] for row in input_grid} == {5}] + [width]
    sections = []
    for top, bottom in zip(rows, rows[1:]):
        for left, right in zip(cols, cols[1:]):
            sections.append([(r, c) for r in range(top + 1, bottom) for c in range(left + 1, right)])
    numbers = []
    for section in sections:
        numbers.append(sum(input_grid[r][c] != 0 for r, c in section))
    source = sections[numbers.index(min(numbers))]
    result = [list(row) for row in input_grid]
    for (row, col), section in zip(source, sections):
        for r, c in section:
            result[r][c] = input_grid[row][col]
    return result
