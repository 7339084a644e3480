def solve(input_grid):
    """
    Observations:
    - The output is twice as wide and twice as high as the input.
    - Each cell has become a 2 by 2 square of its colour.
    Procedure:
    1. Write each cell of a row twice.
    2. Write each of these rows twice.
    """
    result = []
    for row in input_grid:
        wide = []
        for cell in row:
            wide.append(cell)
            wide.append(cell)
        result.append(wide)
        result.append(list(wide))
    return result
