def solve(input_grid):
    """
    Observations:
    - The input has one 2 by 2 square of a colour in which one or two cells are 2.
    - In the output the square has left a broad trace in its colour to the edge of the grid.
    - The trace goes diagonally, to the side of each cell of colour 2.
    Procedure:
    1. Find the square and its colour.
    2. For each cell of colour 2 the direction is away from the middle of the square: up or down, left or right.
    3. Move the square step by step in this direction and write its colour at every place that is in the grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    places = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c]]
    top = min(r for r, c in places)
    left = min(c for r, c in places)
    colour = next(input_grid[r][c] for r, c in places if input_grid[r][c] != 2)
    result = [[0] * width for _ in range(height)]
    for row, col in places:
        if input_grid[row][col] != 2:
            continue
        down = 1 if row > top else -1
        right = 1 if col > left else -1
        # The square has left the grid after so many steps.
        for step in range(max(height, width)):
            for r, c in places:
                y = r + down * step
                x = c + right * step
                if 0 <= y < height and 0 <= x < width:
                    result[y][x] = colour
    return result
