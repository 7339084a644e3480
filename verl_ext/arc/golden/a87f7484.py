def solve(input_grid):
    """
    Observations:
    - The input is a row or a column of 3 by 3 pictures, each in a colour of its own.
    - All pictures but one have the same shape.
    - The output is the one with another shape, in its colour.
    Procedure:
    1. Cut the input into squares, from left to right or from top to bottom.
    2. Note for each square which of its cells are filled.
    3. Return the square whose shape occurs once.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    side = min(height, width)
    squares = []
    for top in range(0, height, side):
        for left in range(0, width, side):
            squares.append([list(row[left : left + side]) for row in input_grid[top : top + side]])
    # The shape of a square is where it has cells, whatever their colour.
    shapes = []
    for square in squares:
        shapes.append([[cell != 0 for cell in row] for row in square])
    result = squares[0]
    for square, shape in zip(squares, shapes):
        if shapes.count(shape) == 1:
            result = square
    return result
