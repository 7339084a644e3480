def solve(input_grid):
    """
    Observations:
    - Lines of 5 divide the grid into nine squares with cells of one colour.
    - In the output the squares with the most of these cells are filled with the colour.
    - All others are empty.
    Procedure:
    1. List the places of each square.
    2. Count the coloured cells in each.
    3. Fill those with the highest count, and clear the others.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    rows = [-1] + [r for r in range(height) if set(input_grid[r]) == {5}] + [height]
    cols = [-1] + [c for c in range(width) if {row[c] for row in input_grid} == {5}] + [width]
    sections = []
    for top, bottom in zip(rows, rows[1:]):
        for left, right in zip(cols, cols[1:]):
            sections.append([(r, c) for r in range(top + 1, bottom) for c in range(left + 1, right)])
    colour = max(cell for row in input_grid for cell in row if cell != 5)
    numbers = []
    for section in sections:
        numbers.append(sum(input_grid[r][c] == colour for r, c in section))
    result = [list(row) for row in input_grid]
    for section, number in zip(sections, numbers):
        for r, c in section:
            result[r][c] = colour if number == max(numbers) else 0
    return result
