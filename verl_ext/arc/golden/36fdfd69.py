def solve(input_grid):
    """
    Observations:
    - The input has groups of cells of colour 2 among cells of 0 and of another colour in disorder.
    - The cells of a group touch each other at a side or at a corner, or there is one cell between them.
    - In the output the smallest rectangle around a group is filled: its other cells are 4.
    - The cells of colour 2 stay, and so does everything outside these rectangles.
    Procedure:
    1. Walk from each 2 to those at most two rows and two columns away, to find all cells of a group.
    2. Find the first and the last row and column of the group.
    3. Write 4 in all cells of this rectangle that are not 2.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    twos = {(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 2}
    result = [list(row) for row in input_grid]
    while twos:
        group = [twos.pop()]
        for r, c in group:
            for y in range(r - 2, r + 3):
                for x in range(c - 2, c + 3):
                    if (y, x) in twos:
                        twos.remove((y, x))
                        group.append((y, x))
        rows = [r for r, c in group]
        cols = [c for r, c in group]
        # The rectangle is filled without its cells of colour 2.
        for r in range(min(rows), max(rows) + 1):
            for c in range(min(cols), max(cols) + 1):
                if input_grid[r][c] != 2:
                    result[r][c] = 4
    return result
