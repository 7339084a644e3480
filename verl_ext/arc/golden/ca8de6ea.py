def solve(input_grid):
    """
    Observations:
    - The input is 5 by 5, and its cells on the two diagonals are coloured.
    - The output is 3 by 3 and has the same cells, drawn together.
    - Its corners and its centre are those of the input; the cells between are the inner ones of the diagonals.
    Procedure:
    1. Take the corners and the centre.
    2. The inner cells, clockwise from the upper left one, go to the top, right, bottom and left of the output.
    """
    first = input_grid[0]
    second = input_grid[1]
    middle = input_grid[2]
    fourth = input_grid[3]
    last = input_grid[4]
    result = [
        [first[0], second[1], first[4]],
        [fourth[1], middle[2], second[3]],
        [last[0], fourth[3], last[4]],
    ]
    return result
