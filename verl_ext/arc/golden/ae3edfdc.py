def solve(input_grid):
    """
    Observations:
    - The input has a 1 and a 2, and cells of colour 7 and 3.
    - In the output every 7 that is in the row or column of the 1 has moved next to it.
    - Every 3 in the row or column of the 2 has moved next to that.
    - Other cells of these colours are gone.
    Procedure:
    1. Find the 1 and the 2.
    2. Each 7 belongs to the 1 and each 3 to the 2.
    3. If it is in the same row or column, write it next to its centre, on the side that it comes from.
    """
    partners = {7: 1, 3: 2}
    centres = {}
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell in (1, 2):
                centres[cell] = (r, c)
    result = [[0] * len(row) for row in input_grid]
    for colour, (r, c) in centres.items():
        result[r][c] = colour
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell not in partners:
                continue
            centre_row, centre_col = centres[partners[cell]]
            if r == centre_row:
                side = 1 if c > centre_col else -1
                result[r][centre_col + side] = cell
            elif c == centre_col:
                side = 1 if r > centre_row else -1
                result[centre_row + side][c] = cell
    return result
