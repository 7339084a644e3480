def solve(input_grid):
    """
    Observations:
    - The input has bars of different lengths, each in a row and a colour of its own; the lowest row is full of 8.
    - In the output the bars are sorted: the shortest is the highest.
    - They stand directly above each other at the right edge, down to the row of 8.
    Procedure:
    1. Note the colour and the length of the bar of each row.
    2. Sort the bars by their length.
    3. Write them at the right edge, the longest in the lowest row; rows above the bars are empty.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    bars = []
    for row in input_grid:
        cells = [cell for cell in row if cell]
        if cells:
            bars.append((len(cells), cells[0]))
    bars.sort()
    result = [[0] * width for _ in range(height - len(bars))]
    for length, colour in bars:
        result.append([0] * (width - length) + [colour] * length)
    return result
