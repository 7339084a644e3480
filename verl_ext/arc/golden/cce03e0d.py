def solve(input_grid):
    """
    Observations:
    - The output consists of as many copies of the input's place as the input has cells, in both directions.
    - Where the input has a 2, the part of the output at this place is a copy of the input.
    - All other parts are empty.
    Procedure:
    1. Make an empty grid, in each direction so many times as large as the input as the input has cells there.
    2. For each 2 of the input find the part of the output with the same place.
    3. Copy the input into this part.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * (width * width) for _ in range(height * height)]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 2:
                continue
            for r in range(height):
                for c in range(width):
                    result[row * height + r][col * width + c] = input_grid[r][c]
    return result
