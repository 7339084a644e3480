def solve(input_grid):
    """
    Observations:
    - The input has one large object and a single cell of another colour in the bottom left corner.
    - In the output the object has the colour of that cell.
    - The corner itself is 0.
    Procedure:
    1. Read the colour in the bottom left corner.
    2. Write this colour wherever the input is not 0.
    3. Clear the corner.
    """
    colour = input_grid[-1][0]
    result = []
    for row in input_grid:
        result.append([colour if cell != 0 else 0 for cell in row])
    result[-1][0] = 0
    return result
