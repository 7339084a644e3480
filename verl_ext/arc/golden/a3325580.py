def solve(input_grid):
    """
    Observations:
    - The input has several shapes in different colours.
    - The largest ones, with equally many cells, matter: each is a column of the output.
    - The columns are in the order of the shapes from left to right; the output has as many rows as a shape has cells.
    Procedure:
    1. Count the cells of each colour.
    2. Keep the colours with the largest count, sorted by their first column.
    3. Write a row of these colours as many times as a shape has cells.
    """
    counts = {}
    first_col = {}
    for row in input_grid:
        for c, cell in enumerate(row):
            if cell == 0:
                continue
            counts[cell] = counts.get(cell, 0) + 1
            first_col[cell] = min(c, first_col.get(cell, c))
    most = max(counts.values())
    largest = [colour for colour in counts if counts[colour] == most]
    largest.sort(key=lambda colour: first_col[colour])
    result = [list(largest) for _ in range(most)]
    return result
