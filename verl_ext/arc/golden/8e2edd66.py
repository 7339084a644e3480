def solve(input_grid):
    """
    Observations:
    - The output is three times as wide and high as the 3 by 3 input.
    - At the place of an empty cell the output has the input with colour and empty cells exchanged.
    - The other parts are empty.
    Procedure:
    1. Exchange colour and empty cells of the input.
    2. Go through the empty cells of the input, and copy the exchanged picture to their parts.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    colour = max(cell for row in input_grid for cell in row)
    swapped = []
    for row in input_grid:
        swapped.append([0 if cell else colour for cell in row])
    result = [[0] * (width * width) for _ in range(height * height)]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col]:
                continue
            # The part at the place of this cell.
            for r in range(height):
                for c in range(width):
                    result[row * height + r][col * width + c] = swapped[r][c]
    return result
