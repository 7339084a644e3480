def solve(input_grid):
    """
    Observations:
    - The input has two cells, of the colours 8 and 7.
    - In the output each of them is the middle of a cross of its colour that goes over the whole grid.
    - Where a line of one cross meets a line of the other, the cell is 2.
    Procedure:
    1. Fill the row and the column of both cells with their colours.
    2. The crosses meet at the row of the one and the column of the other, and the other way round.
    3. Write 2 at these two places.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    cells = []
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell:
                cells.append((r, c, cell))
    result = [[0] * width for _ in range(height)]
    for row, col, colour in cells:
        for c in range(width):
            result[row][c] = colour
        for r in range(height):
            result[r][col] = colour
    first, second = cells
    result[first[0]][second[1]] = 2
    result[second[0]][first[1]] = 2
    return result
