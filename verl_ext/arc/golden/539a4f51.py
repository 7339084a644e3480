def solve(input_grid):
    """
    Observations:
    - The input is 5 by 5 and has nested corners of colours, and possibly empty cells at its right and lower edge.
    - The part without empty cells is a square; along its diagonal are the colours of the corners.
    - The output is 10 by 10: the sequence of corners repeats outwards.
    Procedure:
    1. Take the diagonal as far as it is not 0.
    2. The colour of a cell of the output depends on the larger of its row and column.
    3. Use it, modulo the length, as the place in the diagonal.
    """
    diagonal = []
    for i in range(len(input_grid)):
        if input_grid[i][i]:
            diagonal.append(input_grid[i][i])
    side = 2 * len(input_grid)
    result = []
    for r in range(side):
        row = []
        for c in range(side):
            row.append(diagonal[max(r, c) % len(diagonal)])
        result.append(row)
    return result
