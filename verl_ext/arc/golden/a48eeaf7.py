def solve(input_grid):
    """
    Observations:
    - The input has one square of 2 by 2 cells of colour 2, and single cells of colour 5 around it.
    - In the output each 5 is moved straight or diagonally towards the square until it touches it.
    - So a 5 above the square ends in the row just above it, and a 5 level with the square stays in its row.
    - The same holds for rows below, and for columns on the left and on the right.
    Procedure:
    1. Find the rows and columns of the square, and keep the square alone.
    2. For each 5, limit its row to the range from one above the square to one below it.
    3. Limit its column in the same way, and write 5 there.
    """
    rows = [r for r, row in enumerate(input_grid) if 2 in row]
    cols = [c for c, col in enumerate(zip(*input_grid)) if 2 in col]
    result = [[2 if cell == 2 else 0 for cell in row] for row in input_grid]
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 5:
                new_r = min(max(r, rows[0] - 1), rows[-1] + 1)
                new_c = min(max(c, cols[0] - 1), cols[-1] + 1)
                result[new_r][new_c] = 5
    return result
