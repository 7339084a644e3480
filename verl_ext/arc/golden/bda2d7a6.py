def solve(input_grid):
    """
    Observations:
    - The input consists of square rings, one inside the other.
    - The layout stays, and each colour is replaced by another one everywhere.
    - List the colours in the order in which they appear from the outside to the inside, each once.
    - Each colour becomes the one before it in the list, and the first becomes the last.
    Procedure:
    1. Read the colours along the diagonal from the top left corner, and keep the first occurrence of each.
    2. Make a table from each colour to the one before it, in a cycle.
    3. Replace every cell.
    """
    colours = []
    for step in range(len(input_grid)):
        cell = input_grid[step][step]
        if cell not in colours:
            colours.append(cell)
    table = {}
    for place, colour in enumerate(colours):
        table[colour] = colours[place - 1]
    result = [[table[cell] for cell in row] for row in input_grid]
    return result
