def solve(input_grid):
    """
    Observations:
    - The input is 3 by 3 and the output is a 3 by 3 arrangement of blocks of that size.
    - One colour is the most frequent one of the input.
    - A block is a copy of the input where the matching cell of the input has this colour, else it is all 0.
    Procedure:
    1. Find the most frequent colour.
    2. Start with an empty output.
    3. For each cell of this colour, copy the input into its block.
    """
    size = len(input_grid)
    cells = [cell for row in input_grid for cell in row]
    common = max(set(cells), key=cells.count)
    result = [[0] * (size * size) for _ in range(size * size)]
    for row in range(size):
        for col in range(size):
            if input_grid[row][col] == common:
                for r in range(size):
                    for c in range(size):
                        result[row * size + r][col * size + c] = input_grid[r][c]
    return result
