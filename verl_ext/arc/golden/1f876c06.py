def solve(input_grid):
    """
    Observations:
    - Each colour of the input has two cells, which lie on a common diagonal.
    - In the output the two cells are joined by a diagonal line of their colour.
    - Cells off these lines stay 0.
    Procedure:
    1. Collect the places of each colour, from top to bottom.
    2. Walk from the upper place to the lower one, one row down and one column to the side at a time.
    3. Write the colour at each step.
    """
    result = [list(row) for row in input_grid]
    places = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell != 0:
                places.setdefault(cell, []).append((r, c))
    for colour, ((r1, c1), (r2, c2)) in places.items():
        side = 1 if c2 > c1 else -1
        for step in range(r2 - r1 + 1):
            result[r1 + step][c1 + side * step] = colour
    return result
