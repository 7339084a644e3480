def solve(input_grid):
    """
    Observations:
    - A row of 4 separates an upper part from a lower part of the same size, both in colour 2.
    - The output has the size of one part.
    - A cell of the output is 3 where exactly one of the two parts is coloured.
    - It is 0 where both parts are coloured or both are empty.
    Procedure:
    1. Find the row of 4.
    2. Compare each row above it with the matching row below it.
    3. Write 3 where the two cells differ, else 0.
    """
    wall = input_grid.index([4] * len(input_grid[0]))
    result = []
    for row in range(wall):
        upper = input_grid[row]
        lower = input_grid[wall + 1 + row]
        result.append([3 if a != b else 0 for a, b in zip(upper, lower)])
    return result
