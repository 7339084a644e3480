def solve(input_grid):
    """
    Observations:
    - The input has several objects, each of one colour, on a ground of 0; no two have the same colour.
    - The output is the object with the most cells.
    - It is cut out as the smallest rectangle around it, with 0 where the object has no cell.
    Procedure:
    1. Count the cells of each colour other than 0, and choose the most frequent colour.
    2. Find the rows and the columns in which it occurs.
    3. Cut this part out.
    """
    cells = [cell for row in input_grid for cell in row if cell != 0]
    colour = max(set(cells), key=cells.count)
    rows = [r for r, row in enumerate(input_grid) if colour in row]
    cols = [c for c, col in enumerate(zip(*input_grid)) if colour in col]
    result = []
    for row in input_grid[rows[0] : rows[-1] + 1]:
        part = row[cols[0] : cols[-1] + 1]
        result.append([cell if cell == colour else 0 for cell in part])
    return result
