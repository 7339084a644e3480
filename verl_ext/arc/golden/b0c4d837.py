def solve(input_grid):
    """
    Observations:
    - The input is a vessel with walls of 5, filled with 8 from below.
    - The number of rows of the vessel that are not filled is what matters.
    - The output is a 3 by 3 grid with so many 8.
    - They fill its rows from the top, and the second row runs from right to left.
    Procedure:
    1. Count the rows of the wall that have empty cells between the walls.
    2. List the places of the grid row by row, every second row backwards.
    3. Write 8 at the first so many places.
    """
    walls = [row for row in input_grid if 5 in row]
    missing = 0
    for row in walls:
        left = row.index(5)
        right = len(row) - 1 - row[::-1].index(5)
        if 0 in row[left : right + 1]:
            missing += 1
    places = []
    for r in range(3):
        cols = range(3) if r % 2 == 0 else range(2, -1, -1)
        places += [(r, c) for c in cols]
    result = [[0] * 3 for _ in range(3)]
    for r, c in places[:missing]:
        result[r][c] = 8
    return result
