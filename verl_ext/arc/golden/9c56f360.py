def solve(input_grid):
    """
    Observations:
    - The input has cells of 8 and of 3.
    - In the output every 3 has moved to the left in its row.
    - It stops at the first 8, or at another 3, or at the edge.
    Procedure:
    1. Go through each row from the left.
    2. For each 3 go left while the cells are empty.
    3. Write it there and clear its old place.
    """
    result = [list(row) for row in input_grid]
    for row in result:
        for c in range(len(row)):
            if row[c] != 3:
                continue
            place = c
            while place > 0 and row[place - 1] == 0:
                place -= 1
            row[c] = 0
            row[place] = 3
    return result
