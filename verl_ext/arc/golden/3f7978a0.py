def solve(input_grid):
    """
    Observations:
    - The input has two vertical lines of 5 with an 8 at each end.
    - Other cells of colour 8 are scattered.
    - The output is the rectangle between these four 8, with everything in it.
    Procedure:
    1. Find the columns and rows of the lines of 5.
    2. The rectangle reaches one row further, up and down.
    3. Cut it out.
    """
    fives = []
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 5:
                fives.append((r, c))
    top = min(r for r, c in fives) - 1
    bottom = max(r for r, c in fives) + 1
    left = min(c for r, c in fives)
    right = max(c for r, c in fives)
    result = [list(row[left : right + 1]) for row in input_grid[top : bottom + 1]]
    return result
