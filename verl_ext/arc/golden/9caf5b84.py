def solve(input_grid):
    """
    Observations:
    - The input has several colours.
    - The two that are most frequent stay.
    - All other cells become 7.
    Procedure:
    1. Count the cells of each colour.
    2. Keep the two with the highest counts, and write 7 for all others.
    """
    counts = {}
    for row in input_grid:
        for cell in row:
            counts[cell] = counts.get(cell, 0) + 1
    order = sorted(counts, key=lambda colour: -counts[colour])
    kept = order[:2]
    result = []
    for row in input_grid:
        result.append([cell if cell in kept else 7 for cell in row])
    return result
