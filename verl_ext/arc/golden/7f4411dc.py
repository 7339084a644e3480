def solve(input_grid):
    """
    Observations:
    - The input has filled rectangles of a colour and single cells of the same colour.
    - In the output the single cells are gone.
    - Every cell of a rectangle is part of a 2 by 2 square.
    Procedure:
    1. Go through all 2 by 2 squares.
    2. If all four cells are coloured, they stay.
    3. All other cells become 0.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * width for _ in range(height)]
    for row in range(height - 1):
        for col in range(width - 1):
            square = []
            for r in (row, row + 1):
                for c in (col, col + 1):
                    square.append((r, c))
            if all(input_grid[r][c] for r, c in square):
                for r, c in square:
                    result[r][c] = input_grid[r][c]
    return result
