def solve(input_grid):
    """
    Observations:
    - The input is two squares side by side or one above the other: a picture of 8 and one of other colours.
    - The output is as many times larger than a square as the square has cells in a direction.
    - Each coloured cell has become a copy of the picture of 8 in its colour.
    Procedure:
    1. Cut the input into its two squares.
    2. Tell by the colour 8 which is the picture.
    3. For each coloured cell of the other square draw the picture in its colour at its place.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    side = min(height, width)
    first = [list(row[:side]) for row in input_grid[:side]]
    second = [list(row[width - side :]) for row in input_grid[height - side :]]
    # The picture has no colour but 8.
    if {cell for row in first for cell in row} <= {0, 8}:
        picture, colours = first, second
    else:
        picture, colours = second, first
    result = [[0] * (side * side) for _ in range(side * side)]
    for row in range(side):
        for col in range(side):
            for r in range(side):
                for c in range(side):
                    if picture[r][c]:
                        result[row * side + r][col * side + c] = colours[row][col]
    return result
