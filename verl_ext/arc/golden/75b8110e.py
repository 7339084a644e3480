def solve(input_grid):
    """
    Observations:
    - The input is four pictures, one in each quarter: 4, 5, 6 and 9.
    - The output lays them over each other.
    - Where several have a cell, 5 covers 6, 6 covers 9, and 9 covers 4.
    Procedure:
    1. Cut the input into its quarters.
    2. For each place look at upper right, lower left, lower right and upper left, in this order.
    3. Write the first cell that is not 0.
    """
    half = len(input_grid) // 2
    middle = len(input_grid[0]) // 2
    result = []
    for r in range(half):
        row = []
        for c in range(middle):
            upper_left = input_grid[r][c]
            upper_right = input_grid[r][c + middle]
            lower_left = input_grid[r + half][c]
            lower_right = input_grid[r + half][c + middle]
            row.append(upper_right or lower_left or lower_right or upper_left)
        result.append(row)
    return result
