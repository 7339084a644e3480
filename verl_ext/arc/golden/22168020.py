def solve(input_grid):
    """
    Observations:
    - The input has figures whose outline is drawn at the left and the right.
    - In the output the cells between two cells of a colour in the same row have this colour.
    Procedure:
    1. For each row and each colour in it find the first and the last cell.
    2. Fill the cells between them.
    """
    result = []
    for row in input_grid:
        cells = list(row)
        for colour in set(row):
            if colour == 0:
                continue
            cols = [c for c, cell in enumerate(row) if cell == colour]
            for c in range(min(cols), max(cols) + 1):
                cells[c] = colour
        result.append(cells)
    return result
