def solve(input_grid):
    """
    Observations:
    - A line of 5 divides the input into two equal pictures.
    - The output is as large as one of them.
    - It has the coloured cells of both; no place is coloured in both.
    Procedure:
    1. Find the row that is 5 throughout.
    2. Take for each place the upper picture's cell, or the lower one's where that is 0.
    """
    line = next(r for r, row in enumerate(input_grid) if set(row) == {5})
    result = []
    for upper, lower in zip(input_grid[:line], input_grid[line + 1 :]):
        row = []
        for first, second in zip(upper, lower):
            row.append(first if first else second)
        result.append(row)
    return result
