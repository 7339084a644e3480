def solve(input_grid):
    """
    Observations:
    - The input is empty; only its size matters.
    - The output has the same size, and its outermost cells are 8.
    - All cells inside this frame are 0.
    Procedure:
    1. Go through all cells.
    2. Write 8 in the first and last row and in the first and last column, and 0 elsewhere.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = []
    for row in range(height):
        new_row = []
        for col in range(width):
            at_edge = row in (0, height - 1) or col in (0, width - 1)
            new_row.append(8 if at_edge else 0)
        result.append(new_row)
    return result
