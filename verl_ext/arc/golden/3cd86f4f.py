def solve(input_grid):
    """
    Observations:
    - Each row of the output has moved to the right, compared with the row below it, by one more column.
    - The lowest row has not moved, and the grid is wider by one column less than it has rows.
    Procedure:
    1. Count how many rows are below a row: it moves by so many columns.
    2. Put so many zeros before it, and fill up behind it.
    """
    height = len(input_grid)
    result = []
    for r, row in enumerate(input_grid):
        below = height - 1 - r
        before = [0] * below
        behind = [0] * r
        result.append(before + list(row) + behind)
    return result
