def solve(input_grid):
    """
    Observations:
    - The input has single coloured cells, at most one in a column.
    - The output is 3 by 3 and has their colours in the order of their columns.
    - The first row is read from left to right, the second from right to left, the third from left to right.
    Procedure:
    1. Go through the columns from the left and list the colours.
    2. Add zeros up to nine.
    3. Cut the list into three rows and reverse the second one.
    """
    width = len(input_grid[0])
    colours = []
    for c in range(width):
        for row in input_grid:
            if row[c]:
                colours.append(row[c])
    colours += [0] * (9 - len(colours))
    result = [colours[0:3], colours[3:6][::-1], colours[6:9]]
    return result
