def solve(input_grid):
    """
    Observations:
    - The input has three objects, each in a colour of its own, on a ground of 0.
    - The output is the smallest rectangle around one of them.
    - This object is symmetric from left to right; the other two are not.
    Procedure:
    1. For each colour, cut out the smallest rectangle around its cells.
    2. Compare each of its rows with its reverse.
    3. Return the rectangle in which all rows are equal to their reverse.
    """
    colours = {cell for row in input_grid for cell in row if cell != 0}
    for colour in colours:
        rows = [r for r, row in enumerate(input_grid) if colour in row]
        cols = [c for c, col in enumerate(zip(*input_grid)) if colour in col]
        part = [row[cols[0] : cols[-1] + 1] for row in input_grid[rows[0] : rows[-1] + 1]]
        if all(row == row[::-1] for row in part):
            result = part
    return result
