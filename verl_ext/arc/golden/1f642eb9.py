def solve(input_grid):
    """
    Observations:
    - The input has a rectangle of colour 8 and some single cells of other colours at the edges of the grid.
    - Each of these cells is in a row or a column of the rectangle.
    - The cell of the rectangle that is nearest to it takes its colour.
    - The cells at the edges stay.
    Procedure:
    1. Find the first and the last row and column of the rectangle.
    2. For each cell of another colour, move its row into the range of the rectangle's rows, likewise its column.
    3. Write the colour at this place.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    eights = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 8]
    top, bottom = min(r for r, c in eights), max(r for r, c in eights)
    left, right = min(c for r, c in eights), max(c for r, c in eights)
    result = [list(row) for row in input_grid]
    for r in range(height):
        for c in range(width):
            color = input_grid[r][c]
            if color not in (0, 8):
                y = min(max(r, top), bottom)
                x = min(max(c, left), right)
                result[y][x] = color
    return result
