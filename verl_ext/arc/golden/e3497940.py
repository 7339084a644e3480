def solve(input_grid):
    """
    Observations:
    - A column of 5 separates a left and a right part of the same size.
    - The output has the size of the left part.
    - It is the left part with the mirrored right part laid over it: the right part is folded along the column.
    Procedure:
    1. Find the column of 5.
    2. For each row take the left part and the reversed right part.
    3. Keep the left cell if it is not 0, else take the right one.
    """
    wall = input_grid[0].index(5)
    result = []
    for row in input_grid:
        left = row[:wall]
        right = row[wall + 1 :][::-1]
        result.append([a if a != 0 else b for a, b in zip(left, right)])
    return result
