def solve(input_grid):
    """
    Observations:
    - The input has four single cells of colour 5 around one ring of another colour.
    - In the output there is a second, larger ring in the same colour.
    - Its top side lies just below the uppermost 5, and its bottom side just above the lowest 5.
    - Its left and right sides lie just inside the outermost 5 on the left and on the right.
    Procedure:
    1. Find the rows and the columns of the 5, and the colour of the ring.
    2. Go one cell inwards from the outermost rows and columns.
    3. Draw the border of this rectangle in the colour of the ring.
    """
    result = [list(row) for row in input_grid]
    rows = [r for r, row in enumerate(input_grid) if 5 in row]
    cols = [c for c, col in enumerate(zip(*input_grid)) if 5 in col]
    colour = max(cell for row in input_grid for cell in row if cell != 5)
    top = rows[0] + 1
    bottom = rows[-1] - 1
    left = cols[0] + 1
    right = cols[-1] - 1
    for col in range(left, right + 1):
        result[top][col] = colour
        result[bottom][col] = colour
    for row in range(top, bottom + 1):
        result[row][left] = colour
        result[row][right] = colour
    return result
