def solve(input_grid):
    """
    Observations:
    - The input has some coloured rows at the top and only 0 below them.
    - The coloured rows stay where they are.
    - The output also has them at the bottom, in reverse order: it is symmetric from top to bottom.
    Procedure:
    1. Copy the grid.
    2. Copy each coloured row to the row at the same distance from the bottom.
    """
    height = len(input_grid)
    result = [list(row) for row in input_grid]
    for step in range(height):
        row = input_grid[step]
        if any(cell != 0 for cell in row):
            result[height - 1 - step] = list(row)
    return result
