def solve(input_grid):
    """
    Observations:
    - The input has many small bars in a regular order; most of them have the same colour.
    - Three other colours are rarer, each with another number of bars.
    - The output has these three colours below each other, the most frequent first.
    Procedure:
    1. Count the cells of each colour but 0.
    2. Leave out the most frequent colour.
    3. Sort the others by their count, the largest first.
    """
    counts = {}
    for row in input_grid:
        for cell in row:
            if cell:
                counts[cell] = counts.get(cell, 0) + 1
    order = sorted(counts, key=lambda colour: -counts[colour])
    result = [[colour] for colour in order[1:]]
    return result
