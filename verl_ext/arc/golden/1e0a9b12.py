def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input.
    - Each coloured cell falls down in its own column.
    - They pile up at the bottom, and keep their order from top to bottom.
    Procedure:
    1. For each column, collect the cells that are not 0, from top to bottom.
    2. Put as many 0 before them as are needed to fill the column.
    3. Turn the columns back into rows.
    """
    height = len(input_grid)
    columns = []
    for col in zip(*input_grid):
        cells = [cell for cell in col if cell != 0]
        columns.append([0] * (height - len(cells)) + cells)
    result = [list(row) for row in zip(*columns)]
    return result
