def solve(input_grid):
    """
    Observations:
    - Each colour of the input has one column in the output.
    - The columns are bars that start at the top; their length is the number of cells of the colour.
    - The bars are sorted from the longest to the shortest.
    - Below the bars the output is 0, and its height is that of the longest bar.
    Procedure:
    1. Count the cells of each colour.
    2. Sort the colours by count, largest first.
    3. Draw row by row: a colour appears in the rows above its count.
    """
    cells = [cell for row in input_grid for cell in row]
    colours = sorted(set(cells), key=cells.count, reverse=True)
    height = cells.count(colours[0])
    result = []
    for row in range(height):
        result.append([c if row < cells.count(c) else 0 for c in colours])
    return result
