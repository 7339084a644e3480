def solve(input_grid):
    """
    Observations:
    - The four corners of the input have a colour each, and lines of 1 frame a square between them.
    - Inside the frame there is a pattern of 8 on a ground of 0.
    - The output has the size of the inside of the frame.
    - Each quarter of the pattern gets the colour of its own corner; cells that are 0 stay 0.
    Procedure:
    1. Cut out the inside: without the two outer rows and columns on each side.
    2. For each cell, choose the corner of its quarter.
    3. Write the colour of the corner where the pattern is 8.
    """
    inside = [row[2:-2] for row in input_grid[2:-2]]
    half = len(inside) // 2
    result = []
    for r, row in enumerate(inside):
        outer = input_grid[0] if r < half else input_grid[-1]
        new_row = []
        for c, cell in enumerate(row):
            corner = outer[0] if c < half else outer[-1]
            new_row.append(corner if cell == 8 else 0)
        result.append(new_row)
    return result
