def solve(input_grid):
    """
    Observations:
    - The input has several shapes of colour 1.
    - Some of them are square rings: 3 by 3 cells of colour 1 with a 0 in the centre.
    - In the output each ring is replaced by a plus of colour 2 in the same 3 by 3 cells, with empty corners.
    - All other shapes are unchanged.
    Procedure:
    1. Copy the grid.
    2. At each place, test whether the 3 by 3 cells are a ring.
    3. If so, write the plus over it.
    """
    ring = [1, 1, 1, 1, 0, 1, 1, 1, 1]
    plus = [0, 2, 0, 2, 2, 2, 0, 2, 0]
    result = [list(row) for row in input_grid]
    for top in range(len(input_grid) - 2):
        for left in range(len(input_grid[0]) - 2):
            places = [(top + r, left + c) for r in range(3) for c in range(3)]
            if [input_grid[r][c] for r, c in places] == ring:
                for (r, c), colour in zip(places, plus):
                    result[r][c] = colour
    return result
