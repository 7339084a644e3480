def solve(input_grid):
    """
    Observations:
    - The input has outlines of slanted figures, each in one colour.
    - In the output a figure leans more to the right: its cells move right by one column.
    - The bottom row of a figure does not move.
    - No cell moves beyond the rightmost column that the figure has in the input.
    Procedure:
    1. Walk from each coloured cell to the eight cells around it, to find all cells of a figure.
    2. Find the bottom row and the rightmost column of the figure.
    3. Write the cells of the bottom row at their old place.
    4. Write all others one column further right, but not right of the rightmost column.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    colored = {(r, c) for r in range(height) for c in range(width) if input_grid[r][c] != 0}
    result = [[0] * width for _ in range(height)]
    while colored:
        figure = [colored.pop()]
        color = input_grid[figure[0][0]][figure[0][1]]
        for r, c in figure:
            for y in range(r - 1, r + 2):
                for x in range(c - 1, c + 2):
                    if (y, x) in colored and input_grid[y][x] == color:
                        colored.remove((y, x))
                        figure.append((y, x))
        bottom = max(r for r, c in figure)
        right = max(c for r, c in figure)
        for r, c in figure:
            if r == bottom:
                result[r][c] = color
            else:
                result[r][min(c + 1, right)] = color
    return result
