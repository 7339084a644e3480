def solve(input_grid):
    """
    Observations:
    - The output has the same size as the input and only one colour.
    - This colour is the most frequent one of the input.
    Procedure:
    1. Put all cells in one list.
    2. Find the colour with the highest count.
    3. Fill a grid of the same size with it.
    """
    cells = [cell for row in input_grid for cell in row]
    colour = max(set(cells), key=cells.count)
    result = [[colour] * len(row) for row in input_grid]
    return result
