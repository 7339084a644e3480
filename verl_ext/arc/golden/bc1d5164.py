def solve(input_grid):
    """
    Observations:
    - The input is 5 by 7, with one colour on a ground of 0; the output is 3 by 3.
    - Each of the four corners of the input holds a square of 3 by 3; they share some cells.
    - A cell of the output is coloured if it is coloured in at least one of the four squares.
    Procedure:
    1. Start with an empty square.
    2. For each corner, lay its square over the result.
    3. Copy every coloured cell.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * 3 for _ in range(3)]
    for top in (0, height - 3):
        for left in (0, width - 3):
            for r in range(3):
                for c in range(3):
                    cell = input_grid[top + r][left + c]
                    if cell != 0:
                        result[r][c] = cell
    return result
