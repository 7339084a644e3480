def solve(input_grid):
    """
    Observations:
    - The input has several filled rectangles of different colours on a ground of 0.
    - The output is filled with one colour: that of the rectangle with the fewest cells.
    - The output has the size of this rectangle.
    Procedure:
    1. Count the cells of each colour other than 0, and choose the rarest colour.
    2. Count the rows and the columns in which it occurs.
    3. Return a grid of this size in this colour.
    """
    cells = [cell for row in input_grid for cell in row if cell != 0]
    colour = min(set(cells), key=cells.count)
    height = sum(1 for row in input_grid if colour in row)
    width = sum(1 for col in zip(*input_grid) if colour in col)
    result = [[colour] * width for _ in range(height)]
    return result
