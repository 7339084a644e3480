def solve(input_grid):
    """
    Observations:
    - The input is symmetric: the same after mirroring it at its diagonals, sideways and upside down.
    - A 5 by 5 square of 3 covers a part of it.
    - The output is what is under the square.
    Procedure:
    1. Find the square of 3.
    2. For each of its cells look at the mirror images: sideways, upside down, both, and at the diagonal.
    3. Take the first that is not 3.
    """
    side = len(input_grid)
    covered = [(r, c) for r in range(side) for c in range(side) if input_grid[r][c] == 3]
    top = min(r for r, c in covered)
    bottom = max(r for r, c in covered)
    left = min(c for r, c in covered)
    right = max(c for r, c in covered)
    result = []
    for r in range(top, bottom + 1):
        row = []
        for c in range(left, right + 1):
            y = side - 1 - r
            x = side - 1 - c
            images = (
                input_grid[r][x],
                input_grid[y][c],
                input_grid[y][x],
                input_grid[c][r],
                input_grid[x][y],
            )
            row.append(next(image for image in images if image != 3))
        result.append(row)
    return result
