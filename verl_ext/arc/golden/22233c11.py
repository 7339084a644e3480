def solve(input_grid):
    """
    Observations:
    - The input has pairs of equal squares of colour 3 that touch at a corner.
    - For each pair there are two squares of colour 8 of the same size in the output.
    - The 8 lie on the other diagonal: they touch the corners of the area that the pair spans.
    - What is outside the grid is cut off.
    Procedure:
    1. Walk from each 3 to the eight cells around it, to find all cells of a pair.
    2. The side of one square is half of the width of the pair.
    3. If the pair goes down to the right, the new squares are at the top right and the bottom left corner.
    4. Otherwise they are at the top left and the bottom right corner.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    threes = {(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 3}
    result = [list(row) for row in input_grid]
    while threes:
        pair = [threes.pop()]
        for r, c in pair:
            for y in range(r - 1, r + 2):
                for x in range(c - 1, c + 2):
                    if (y, x) in threes:
                        threes.remove((y, x))
                        pair.append((y, x))
        top, bottom = min(r for r, c in pair), max(r for r, c in pair)
        left, right = min(c for r, c in pair), max(c for r, c in pair)
        size = (right - left + 1) // 2
        if input_grid[top][left] == 3:
            starts = [(top - size, right + 1), (bottom + 1, left - size)]
        else:
            starts = [(top - size, left - size), (bottom + 1, right + 1)]
        for row, col in starts:
            for r in range(max(row, 0), min(row + size, height)):
                for c in range(max(col, 0), min(col + size, width)):
                    result[r][c] = 8
    return result
