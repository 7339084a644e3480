def solve(input_grid):
    """
    Observations:
    - The input has many single cells; only one colour occurs just once.
    - The output has this cell with a ring of 2 around it.
    - Everything else is empty.
    Procedure:
    1. Count the cells of each colour and find the one that occurs once.
    2. Write 2 at the cells around it that are in the grid, and the colour itself.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    counts = {}
    place = {}
    for r in range(height):
        for c in range(width):
            colour = input_grid[r][c]
            if colour:
                counts[colour] = counts.get(colour, 0) + 1
                place[colour] = (r, c)
    # The one colour that no second cell has.
    single = next(colour for colour in counts if counts[colour] == 1)
    row, col = place[single]
    result = [[0] * width for _ in range(height)]
    for r in range(row - 1, row + 2):
        for c in range(col - 1, col + 2):
            if 0 <= r < height and 0 <= c < width:
                result[r][c] = 2
    result[row][col] = single
    return result
