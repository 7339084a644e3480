def solve(input_grid):
    """
    Observations:
    - A row of 5 divides the grid; the rows above it are coloured, those below it are empty.
    - The output has one more cell: in the middle of the lowest row.
    - It has the colour that is most frequent above the row of 5.
    Procedure:
    1. Count the colours above the row of 5.
    2. Write the most frequent one in the middle of the last row.
    """
    line = next(r for r, row in enumerate(input_grid) if set(row) == {5})
    counts = {}
    for row in input_grid[:line]:
        for cell in row:
            counts[cell] = counts.get(cell, 0) + 1
    main = max(counts, key=lambda colour: counts[colour])
    result = [list(row) for row in input_grid]
    result[-1][len(input_grid[0]) // 2] = main
    return result
