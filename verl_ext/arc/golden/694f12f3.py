def solve(input_grid):
    """
    Observations:
    - The input has two filled rectangles of colour 4 with different sizes.
    - In the output the inside of each rectangle has another colour; a border of 4, one cell thick, stays.
    - The inside of the larger rectangle is 2, that of the smaller one is 1.
    Procedure:
    1. Walk from each 4 through all cells of colour 4 that touch it at a side: a rectangle.
    2. Order the two rectangles by their number of cells.
    3. In each rectangle, write the colour in the cells that have a 4 on all four sides.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    fours = {(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 4}
    rest = set(fours)
    rectangles = []
    while rest:
        rectangle = [rest.pop()]
        for r, c in rectangle:
            for cell in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                if cell in rest:
                    rest.remove(cell)
                    rectangle.append(cell)
        rectangles.append(rectangle)
    rectangles.sort(key=len)
    result = [list(row) for row in input_grid]
    for color, rectangle in enumerate(rectangles, 1):
        for r, c in rectangle:
            beside = {(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)}
            if beside <= fours:
                result[r][c] = color
    return result
