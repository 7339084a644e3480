def solve(input_grid):
    """
    Observations:
    - The output is an enlarged input: each cell is a square block of its colour.
    - The side of the blocks differs between examples.
    - It equals the number of different colours of the input, with 0 not counted.
    Procedure:
    1. Count the colours that are not 0.
    2. Repeat every cell that many times in its row.
    3. Repeat every row that many times.
    """
    colours = {cell for row in input_grid for cell in row if cell != 0}
    scale = len(colours)
    result = []
    for row in input_grid:
        wide = [cell for cell in row for _ in range(scale)]
        for _ in range(scale):
            result.append(list(wide))
    return result
