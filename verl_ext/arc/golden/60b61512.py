def solve(input_grid):
    """
    Observations:
    - The input has objects of colour 4; each of them lies in a square of 3 by 3 cells.
    - The cells of an object touch at sides or at corners.
    - In the output the empty cells of this square are 7.
    - Cells outside these squares stay 0, and cells of colour 4 stay 4.
    Procedure:
    1. Collect the cells of each object, by walking to any of the eight cells around.
    2. Find the smallest rectangle around the object.
    3. Write 7 where the rectangle is 0.
    """
    places = set()
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 4:
                places.add((r, c))
    result = [list(row) for row in input_grid]
    while places:
        group = [places.pop()]
        for row, col in group:
            for r in range(row - 1, row + 2):
                for c in range(col - 1, col + 2):
                    if (r, c) in places:
                        places.remove((r, c))
                        group.append((r, c))
        rows = [r for r, c in group]
        cols = [c for r, c in group]
        for r in range(min(rows), max(rows) + 1):
            for c in range(min(cols), max(cols) + 1):
                if result[r][c] == 0:
                    result[r][c] = 7
    return result
