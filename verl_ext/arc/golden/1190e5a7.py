def solve(input_grid):
    """
    Observations:
    - Lines of one colour divide the grid into parts of another colour.
    - The output has one cell for each part, all in the colour of the parts.
    - So it has as many rows and columns as there are parts in each direction.
    Procedure:
    1. A line is a row, or a column, of a single colour.
    2. The parts are of the other colour.
    3. Count the rows and columns of parts: between lines that are next to each other in the grid there is none.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    rows = [r for r in range(height) if len(set(input_grid[r])) == 1]
    cols = [c for c in range(width) if len({row[c] for row in input_grid}) == 1]
    line = input_grid[rows[0]][0]
    ground = next(cell for row in input_grid for cell in row if cell != line)
    # Parts lie where a row that is no line follows one that is, or the edge.
    num_rows = sum(r not in rows and (r == 0 or r - 1 in rows) for r in range(height))
    num_cols = sum(c not in cols and (c == 0 or c - 1 in cols) for c in range(width))
    result = [[ground] * num_cols for _ in range(num_rows)]
    return result
