def solve(input_grid):
    """
    Observations:
    - The input has two rectangular rings, each in a colour of its own.
    - The output is 2 by 2 and has one colour.
    - It is the colour of the larger ring: the one whose rectangle covers more cells.
    Procedure:
    1. For each colour, count the rows and the columns in which it occurs.
    2. The product is the area of its rectangle.
    3. Fill the output with the colour that has the largest area.
    """
    colours = {cell for row in input_grid for cell in row if cell != 0}
    areas = {}
    for colour in colours:
        height = sum(1 for row in input_grid if colour in row)
        width = sum(1 for col in zip(*input_grid) if colour in col)
        areas[colour] = height * width
    winner = max(areas, key=areas.get)
    result = [[winner] * 2 for _ in range(2)]
    return result
