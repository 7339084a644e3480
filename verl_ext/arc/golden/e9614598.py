def solve(input_grid):
    """
    Observations:
    - The input has two cells of colour 1 in the same row or in the same column.
    - In the output there is a plus of five cells of colour 3 halfway between them.
    - The cells of colour 1 stay.
    Procedure:
    1. Find the two cells.
    2. The centre is the mean of their rows and the mean of their columns.
    3. Write 3 at the centre and at its four direct neighbours.
    """
    result = [list(row) for row in input_grid]
    places = []
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 1:
                places.append((r, c))
    (r1, c1), (r2, c2) = places
    row = (r1 + r2) // 2
    col = (c1 + c2) // 2
    for r, c in ((row, col), (row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
        result[r][c] = 3
    return result
