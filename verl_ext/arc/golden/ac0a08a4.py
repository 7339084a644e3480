def solve(input_grid):
    """
    Observations:
    - The input is 3 by 3 with some coloured cells.
    - The output is larger by the number of coloured cells, in both directions.
    - Each cell of the input has become a square of its colour.
    Procedure:
    1. Count the cells that are not 0.
    2. Repeat each cell of a row so many times.
    3. Repeat each of these rows so many times.
    """
    factor = sum(cell != 0 for row in input_grid for cell in row)
    result = []
    for row in input_grid:
        wide = []
        for cell in row:
            wide += [cell] * factor
        for _ in range(factor):
            result.append(list(wide))
    return result
