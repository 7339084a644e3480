def solve(input_grid):
    """
    Observations:
    - The input has filled rectangles of 5 on a ground of 0.
    - In the output the inside of each rectangle is 2.
    - Its border, one cell wide, stays 5.
    - A cell of the inside is surrounded by eight cells of colour 5.
    Procedure:
    1. Copy the grid.
    2. For each cell that is not at the edge of the grid, look at the 3 by 3 cells around it in the input.
    3. If all of them are 5, write 2.
    """
    result = [list(row) for row in input_grid]
    for row in range(1, len(input_grid) - 1):
        for col in range(1, len(input_grid[0]) - 1):
            around = [cell for line in input_grid[row - 1 : row + 2] for cell in line[col - 1 : col + 2]]
            if around.count(5) == 9:
                result[row][col] = 2
    return result
