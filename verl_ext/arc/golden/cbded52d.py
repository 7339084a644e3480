def solve(input_grid):
    """
    Observations:
    - Empty lines divide the grid into nine 2 by 2 squares of 1; some have cells of other colours.
    - If the outer squares of a row or a column have the same colour at the same corner, the middle one gets it, too.
    - Everything else stays.
    Procedure:
    1. Look at each place of the nine squares and each corner.
    2. If the first and the third square of a row agree on a colour other than 1, write it in the second.
    3. Do the same with columns of squares.
    """
    result = [list(row) for row in input_grid]
    # A square has two cells in a direction, and the next one begins three cells further.
    step = 3
    for first in (0, 1):
        for place in range(len(input_grid)):
            row = input_grid[place]
            if row[first] == row[first + 2 * step] and row[first] > 1:
                result[place][first + step] = row[first]
            above = input_grid[first][place]
            below = input_grid[first + 2 * step][place]
            if above == below and above > 1:
                result[first + step][place] = above
    return result
