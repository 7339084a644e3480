def solve(input_grid):
    """
    Observations:
    - The top row has some coloured cells; everything else is empty.
    - In the output each of them stands above a zigzag pattern in its colour.
    - In every second row the colour is in its own column, in the others in the columns to the left and right.
    Procedure:
    1. For each coloured cell of the top row go through all rows.
    2. In rows with an even number write the colour in its column.
    3. In rows with an odd number write it in the neighbouring columns that are in the grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * width for _ in range(height)]
    for col, colour in enumerate(input_grid[0]):
        if colour == 0:
            continue
        for r in range(height):
            if r % 2 == 0:
                result[r][col] = colour
            else:
                for c in (col - 1, col + 1):
                    if 0 <= c < width:
                        result[r][c] = colour
    return result
