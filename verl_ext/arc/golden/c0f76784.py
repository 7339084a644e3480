def solve(input_grid):
    """
    Observations:
    - The input has square rings of colour 5 on a ground of 0.
    - In the output the inside of each ring is filled.
    - The colour depends on the side of the inside: 6 for side 1, 7 for side 2, and 8 for side 3.
    Procedure:
    1. A ring has its top left corner where a 5 has a 5 to the right and a 5 below, and a 0 diagonally below.
    2. From that 0, measure the side of the inside by walking right to the next 5.
    3. Fill the inside with the colour 5 plus the side.
    """
    result = [list(row) for row in input_grid]
    for row in range(len(input_grid) - 2):
        for col in range(len(input_grid[0]) - 2):
            upper = input_grid[row][col : col + 2]
            lower = input_grid[row + 1][col : col + 2]
            if upper == [5, 5] and lower == [5, 0]:
                side = input_grid[row + 1].index(5, col + 1) - col - 1
                for r in range(row + 1, row + 1 + side):
                    for c in range(col + 1, col + 1 + side):
                        result[r][c] = 5 + side
    return result
