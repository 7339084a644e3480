def solve(input_grid):
    """
    Observations:
    - The output is three times as wide and high as the 3 by 3 input.
    - Where the input has its most frequent colour, the part of the output at this place is a copy of the input.
    - The other parts are empty.
    Procedure:
    1. Count the colours and find the most frequent one.
    2. Copy the input to the part of each cell of this colour.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    counts = {}
    for row in input_grid:
        for cell in row:
            counts[cell] = counts.get(cell, 0) + 1
    main = max(counts, key=lambda colour: counts[colour])
    result = [[0] * (width * width) for _ in range(height * height)]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != main:
                continue
            for r in range(height):
                for c in range(width):
                    result[row * height + r][col * width + c] = input_grid[r][c]
    return result
