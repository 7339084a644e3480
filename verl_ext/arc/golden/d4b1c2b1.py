def solve(input_grid):
    """
    Observations:
    - The output is larger than the 3 by 3 input by a whole factor, the number of its colours.
    - Each cell has become a square of its colour.
    Procedure:
    1. Count the colours.
    2. Repeat each cell and each row so many times.
    """
    factor = len({cell for row in input_grid for cell in row})
    result = []
    for row in input_grid:
        wide = []
        for cell in row:
            wide += [cell] * factor
        for _ in range(factor):
            result.append(list(wide))
    return result
