def solve(input_grid):
    """
    Observations:
    - The input has three objects, each in a colour of its own, on a ground of 0.
    - The output is one column with the three colours.
    - The colour of the largest object is at the top, that of the smallest one at the bottom.
    Procedure:
    1. Count the cells of each colour other than 0.
    2. Sort the colours by their count, the largest first.
    3. Write each of them as a row of one cell.
    """
    cells = [cell for row in input_grid for cell in row if cell != 0]
    colours = sorted(set(cells), key=cells.count, reverse=True)
    result = [[colour] for colour in colours]
    return result
