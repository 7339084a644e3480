def solve(input_grid):
    """
    Observations:
    - The output is twice as large as the input, and each coloured cell has become a 2 by 2 square.
    - Thin diagonals of 1 lead from each square to the upper left and to the lower right.
    - They end at the edge and do not change the squares.
    Procedure:
    1. Two places are on the same diagonal if the difference of row and column is the same.
    2. For each cell of the input make a 2 by 2 square: of its colour if it has one.
    3. If it is empty and a coloured cell is on its diagonal, the square has 1 from its upper left to its lower right.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    diagonals = set()
    for r in range(height):
        for c in range(width):
            if input_grid[r][c]:
                diagonals.add(r - c)
    result = []
    for r in range(height):
        upper = []
        lower = []
        for c in range(width):
            colour = input_grid[r][c]
            if colour:
                upper += [colour, colour]
                lower += [colour, colour]
            elif r - c in diagonals:
                upper += [1, 0]
                lower += [0, 1]
            else:
                upper += [0, 0]
                lower += [0, 0]
        result.append(upper)
        result.append(lower)
    return result
