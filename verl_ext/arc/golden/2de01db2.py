def solve(input_grid):
    """
    Observations:
    - Each row has cells of a colour of its own, some cells of 7, and empty ones.
    - In the output the row has its colour exactly where it did not have it.
    - All other cells are empty.
    Procedure:
    1. Find the colour of a row: the one other than 0 and 7, or 7 if there is no other.
    2. Write it where the row has something else, and 0 where the row has it.
    """
    result = []
    for row in input_grid:
        own = [cell for cell in row if cell not in (0, 7)]
        counts = {}
        for cell in own:
            counts[cell] = counts.get(cell, 0) + 1
        # Single cells of further colours are as if they were empty.
        colour = max(counts, key=lambda cell: counts[cell]) if counts else 7
        result.append([0 if cell == colour else colour for cell in row])
    return result
