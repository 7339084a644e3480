def solve(input_grid):
    """
    Observations:
    - The output is twice as tall and twice as wide as the input.
    - Each cell of the input is a block of 2 by 2 cells of the same colour in the output.
    Procedure:
    1. Write every cell of a row twice.
    2. Write every such row twice.
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
