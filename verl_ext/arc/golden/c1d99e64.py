def solve(input_grid):
    """
    Observations:
    - The input has cells of one colour and empty ones.
    - Some rows and columns are empty throughout.
    - In the output they are lines of 2.
    Procedure:
    1. Find the rows and the columns without a coloured cell.
    2. Write 2 in all of their cells.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    rows = [r for r in range(height) if not any(input_grid[r])]
    cols = [c for c in range(width) if not any(row[c] for row in input_grid)]
    result = []
    for r in range(height):
        line = []
        for c in range(width):
            empty = r in rows or c in cols
            line.append(2 if empty else input_grid[r][c])
        result.append(line)
    return result
