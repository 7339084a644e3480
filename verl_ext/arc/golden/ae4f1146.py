def solve(input_grid):
    """
    Observations:
    - The input has several squares of 3 by 3 cells on a ground of 0, filled with the colours 8 and 1.
    - The output is one of these squares.
    - It is the one with the most cells of colour 1.
    Procedure:
    1. Find all places where 3 by 3 cells have no 0.
    2. Count the 1 in each of these squares.
    3. Return the square with the highest count.
    """
    best = -1
    for top in range(len(input_grid) - 2):
        for left in range(len(input_grid[0]) - 2):
            square = [row[left : left + 3] for row in input_grid[top : top + 3]]
            cells = square[0] + square[1] + square[2]
            if 0 not in cells and cells.count(1) > best:
                best = cells.count(1)
                result = square
    return result
