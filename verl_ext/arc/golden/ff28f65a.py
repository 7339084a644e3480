def solve(input_grid):
    """
    Observations:
    - The input has some squares of 2 by 2 cells of colour 2; the output is 3 by 3.
    - The output has as many cells of colour 1 as the input has squares.
    - They appear in a fixed order: top left, top right, centre, bottom left, bottom right.
    Procedure:
    1. Count the cells of colour 2 and divide by four.
    2. Write this many cells of colour 1, in the fixed order.
    """
    count = sum(row.count(2) for row in input_grid) // 4
    order = [(0, 0), (0, 2), (1, 1), (2, 0), (2, 2)]
    result = [[0] * 3 for _ in range(3)]
    for r, c in order[:count]:
        result[r][c] = 1
    return result
