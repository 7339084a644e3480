def solve(input_grid):
    """
    Observations:
    - The output repeats the input twice in each direction.
    - It also has 8 at the places diagonally next to each coloured cell.
    - An 8 never replaces a coloured cell, and nothing goes round the edge of the output.
    Procedure:
    1. Repeat every row twice and all rows twice.
    2. Remember where this grid has colours.
    3. For each of these places write 8 at the four diagonal neighbours that are empty and inside the grid.
    """
    wide = [list(row) * 2 for row in input_grid]
    result = [list(row) for row in wide + wide]
    height = len(result)
    width = len(result[0])
    coloured = [(r, c) for r in range(height) for c in range(width) if result[r][c]]
    for r, c in coloured:
        for y in (r - 1, r + 1):
            for x in (c - 1, c + 1):
                if 0 <= y < height and 0 <= x < width and result[y][x] == 0:
                    result[y][x] = 8
    return result
