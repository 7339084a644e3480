def solve(input_grid):
    """
    Observations:
    - Lines of 8 divide the grid into nine squares with cells of colour 6.
    - The output has one cell for each square.
    - It is 1 where the square has two cells of colour 6, else 0.
    Procedure:
    1. Find the parts between the lines.
    2. Count the 6 in each part.
    3. Write 1 where there are two.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    rows = [-1] + [r for r in range(height) if set(input_grid[r]) == {8}] + [height]
    cols = [-1] + [c for c in range(width) if {row[c] for row in input_grid} == {8}] + [width]
    result = []
    for top, bottom in zip(rows, rows[1:]):
        line = []
        for left, right in zip(cols, cols[1:]):
            part = [row[left + 1 : right] for row in input_grid[top + 1 : bottom]]
            count = sum(row.count(6) for row in part)
            line.append(1 if count == 2 else 0)
        result.append(line)
    return result
