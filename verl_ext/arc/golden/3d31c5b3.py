def solve(input_grid):
    """
    Observations:
    - The input is four pictures one above the other: 5, 4, 2 and 8.
    - The output lays them over each other.
    - Where several have a cell, 5 covers 4, 4 covers 8, and 8 covers 2.
    Procedure:
    1. Cut the input into quarters.
    2. For each place look at the first, the second, the last and the third picture.
    3. Write the first cell that is not 0.
    """
    quarter = len(input_grid) // 4
    pictures = []
    for start in range(0, 4 * quarter, quarter):
        pictures.append(input_grid[start : start + quarter])
    first, second, third, last = pictures
    result = []
    for r in range(quarter):
        row = []
        for c in range(len(input_grid[0])):
            row.append(first[r][c] or second[r][c] or last[r][c] or third[r][c])
        result.append(row)
    return result
