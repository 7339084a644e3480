def solve(input_grid):
    """
    Observations:
    - The input is filled by areas of a few colours with frayed borders.
    - They lie side by side, or one above the other.
    - The output has one cell for each, in the same order and direction.
    Procedure:
    1. List the colours of the first row in their order, and those of the first column.
    2. If the first row has several colours, they are the output's row.
    3. Otherwise the colours of the first column are its column.
    """
    across = []
    for cell in input_grid[0]:
        if cell not in across:
            across.append(cell)
    downwards = []
    for row in input_grid:
        if row[0] not in downwards:
            downwards.append(row[0])
    if len(across) > 1:
        result = [across]
    else:
        result = [[colour] for colour in downwards]
    return result
