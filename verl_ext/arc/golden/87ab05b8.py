def solve(input_grid):
    """
    Observations:
    - The input is 4 by 4 with a single cell of colour 2.
    - In the output the quarter that this cell belongs to is filled with 2.
    - All other cells are 6.
    Procedure:
    1. Find the 2.
    2. Its quarter has the rows and columns of the same half of the grid.
    3. Fill it with 2 and the rest with 6.
    """
    half = len(input_grid) // 2
    row, col = next((r, c) for r, line in enumerate(input_grid) for c, cell in enumerate(line) if cell == 2)
    result = []
    for r in range(len(input_grid)):
        line = []
        for c in range(len(input_grid[0])):
            same = r // half == row // half and c // half == col // half
            line.append(2 if same else 6)
        result.append(line)
    return result
