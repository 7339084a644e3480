def solve(input_grid):
    """
    Observations:
    - The input has cells of colour 5 on a ground of 0.
    - In the output some of them are 3.
    - These are in the last column, the third last, the fifth last and so on.
    - The cells in the columns between keep their 5.
    Procedure:
    1. Copy the grid.
    2. Go through every second column, from the last one to the left.
    3. Replace 5 by 3 there.
    """
    result = [list(row) for row in input_grid]
    for row in result:
        for col in range(len(row) - 1, -1, -2):
            if row[col] == 5:
                row[col] = 3
    return result
