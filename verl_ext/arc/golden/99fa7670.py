def solve(input_grid):
    """
    Observations:
    - The input has single coloured cells, at most one in a row.
    - In the output each of them draws a line to the right edge.
    - At the edge the line turns down, and goes on to the row above the next coloured cell.
    - The last one goes on to the bottom edge.
    Procedure:
    1. Copy the grid and go through its rows from top to bottom.
    2. In a row with a coloured cell, remember its colour, and fill the row with it from there to the right edge.
    3. In any other row, write the remembered colour in the last cell.
    """
    result = [list(row) for row in input_grid]
    colour = 0
    for row in result:
        for col in range(len(row)):
            if row[col] != 0:
                colour = row[col]
                for c in range(col, len(row)):
                    row[c] = colour
                break
        row[-1] = colour
    return result
