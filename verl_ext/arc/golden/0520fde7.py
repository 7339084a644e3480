def solve(input_grid):
    """
    Observations:
    - The input is 3 by 7: two squares of 3 by 3 with a column of 5 between them.
    - The output is 3 by 3.
    - A cell of the output is 2 where the cells of both squares are 1, and 0 elsewhere.
    Procedure:
    1. Find the column of 5.
    2. Compare the cells left of it with those right of it.
    3. Write 2 where both are 1, else 0.
    """
    wall = input_grid[0].index(5)
    result = []
    for row in input_grid:
        left = row[:wall]
        right = row[wall + 1 :]
        result.append([2 if a == 1 and b == 1 else 0 for a, b in zip(left, right)])
    return result
