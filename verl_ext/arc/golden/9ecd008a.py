def solve(input_grid):
    """
    Observations:
    - The input is its own mirror image, sideways and upside down.
    - A 3 by 3 part of it is empty.
    - The output is what is missing there.
    Procedure:
    1. Find the rows and columns of the empty part.
    2. Read each of its cells from a mirror image: sideways, or upside down where that is empty, too.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    empty = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 0]
    top = min(r for r, c in empty)
    left = min(c for r, c in empty)
    result = []
    for r in range(top, top + 3):
        row = []
        for c in range(left, left + 3):
            sideways = input_grid[r][width - 1 - c]
            # Where the empty part reaches its own mirror image, the other mirror helps.
            row.append(sideways or input_grid[height - 1 - r][c])
        result.append(row)
    return result
