def solve(input_grid):
    """
    Observations:
    - The input is 3 by 3 and has some cells of colour 1.
    - Only their number matters: the output has as many cells of colour 2.
    - They fill the top row from the left, and the fourth one is in the middle of the grid.
    Procedure:
    1. Count the cells of colour 1.
    2. Take the first so many places of the top row followed by the centre.
    3. Write 2 there in an empty grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    count = sum(row.count(1) for row in input_grid)
    places = [(0, c) for c in range(width)] + [(height // 2, width // 2)]
    result = [[0] * width for _ in range(height)]
    for r, c in places[:count]:
        result[r][c] = 2
    return result
