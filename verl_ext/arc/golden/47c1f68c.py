def solve(input_grid):
    """
    Observations:
    - A row and a column in one colour divide the grid into quarters; the upper left one has a shape.
    - The output is the grid without the lines.
    - It has the shape and its mirror images in all four quarters, in the colour of the lines.
    Procedure:
    1. Find the row that is a line, and its colour.
    2. Take the upper left quarter and write the colour of the line wherever it is not 0.
    3. Put its mirror image beside it, and the mirror image of both below.
    """
    line = next(r for r, row in enumerate(input_grid) if len(set(row)) == 1 and row[0])
    colour = input_grid[line][0]
    column = next(c for c in range(len(input_grid[0])) if all(row[c] == colour for row in input_grid))
    upper = []
    for row in input_grid[:line]:
        left = [colour if cell else 0 for cell in row[:column]]
        upper.append(left + left[::-1])
    lower = [list(row) for row in reversed(upper)]
    result = upper + lower
    return result
