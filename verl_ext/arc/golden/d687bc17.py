def solve(input_grid):
    """
    Observations:
    - Each of the four edges of the grid is a line of its own colour; the corners are 0.
    - Inside there are single cells of several colours.
    - A cell with the colour of an edge moves straight to this edge and lies next to it in the output.
    - Cells of any other colour disappear.
    Procedure:
    1. Read the colours of the four edges.
    2. Make a grid with the edges only.
    3. For each coloured cell inside, see whether one of the edges has its colour.
    4. Write the colour next to this edge: in the same column for top and bottom, in the same row for left and right.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [[0] * width for _ in range(height)]
    result[0] = list(input_grid[0])
    result[-1] = list(input_grid[-1])
    for r in range(height):
        result[r][0] = input_grid[r][0]
        result[r][-1] = input_grid[r][-1]
    for r in range(1, height - 1):
        for c in range(1, width - 1):
            color = input_grid[r][c]
            if color == 0:
                continue
            if color == input_grid[0][1]:
                result[1][c] = color
            elif color == input_grid[-1][1]:
                result[-2][c] = color
            elif color == input_grid[1][0]:
                result[r][1] = color
            elif color == input_grid[1][-1]:
                result[r][-2] = color
    return result
