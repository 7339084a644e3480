def solve(input_grid):
    """
    Observations:
    - The input has one object of 6 by 6 cells on a ground of 0.
    - The object consists of four quarters that are turned copies of each other.
    - The output is its upper left quarter, 3 by 3.
    Procedure:
    1. Find the first and the last row and column with a coloured cell.
    2. Keep the upper left half of the rows and of the columns between them.
    """
    rows = [r for r, row in enumerate(input_grid) if any(row)]
    cols = [c for c, col in enumerate(zip(*input_grid)) if any(col)]
    half = (rows[-1] - rows[0] + 1) // 2
    top = rows[0]
    left = cols[0]
    result = [row[left : left + half] for row in input_grid[top : top + half]]
    return result
