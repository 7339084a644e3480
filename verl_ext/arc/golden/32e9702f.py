def solve(input_grid):
    """
    Observations:
    - In the output all coloured cells have moved one column to the left.
    - What moves out of the grid is lost.
    - All empty cells are 5.
    Procedure:
    1. Drop the first cell of each row and add an empty one at its end.
    2. Write 5 wherever a cell is 0.
    """
    result = []
    for row in input_grid:
        moved = list(row[1:]) + [0]
        result.append([cell if cell else 5 for cell in moved])
    return result
