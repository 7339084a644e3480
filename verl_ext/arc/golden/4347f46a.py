def solve(input_grid):
    """
    Observations:
    - The input has filled rectangles.
    - In the output only their borders are left.
    - A cell is inside if its four neighbours at the sides have its colour.
    Procedure:
    1. Copy the grid.
    2. Clear each coloured cell whose neighbours above, below, left and right have the same colour.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for r in range(1, height - 1):
        for c in range(1, width - 1):
            colour = input_grid[r][c]
            around = (input_grid[r - 1][c], input_grid[r + 1][c], input_grid[r][c - 1], input_grid[r][c + 1])
            if set(around) == {colour}:
                result[r][c] = 0
    return result
