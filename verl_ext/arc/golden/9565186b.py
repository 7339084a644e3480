def solve(input_grid):
    """
    Observations:
    - The input has no empty cell.
    - The most frequent colour stays.
    - All other cells become 5.
    Procedure:
    1. Count the cells of each colour.
    2. Find the colour that has the most.
    3. Write 5 wherever the input has another colour.
    """
    counts = {}
    for row in input_grid:
        for cell in row:
            counts[cell] = counts.get(cell, 0) + 1
    main = max(counts, key=lambda colour: counts[colour])
    result = []
    for row in input_grid:
        result.append([cell if cell == main else 5 for cell in row])
    return result
