def solve(input_grid):
    """
    Observations:
    - The input has cells of colour 8 on a ground of 0.
    - Two of them in the same row are joined by a horizontal line of 8.
    - Two of them in the same column are joined by a vertical line of 8.
    Procedure:
    1. List the places of the 8.
    2. For each pair in one row, fill the cells between them.
    3. For each pair in one column, fill the cells between them.
    """
    result = [list(row) for row in input_grid]
    places = []
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 8:
                places.append((r, c))
    for r1, c1 in places:
        for r2, c2 in places:
            if r1 == r2:
                for c in range(c1, c2 + 1):
                    result[r1][c] = 8
            if c1 == c2:
                for r in range(r1, r2 + 1):
                    result[r][c1] = 8
    return result
