def solve(input_grid):
    """
    Observations:
    - The input is a pattern that repeats to the right and downwards, with a square hole of 0 in it.
    - The output has the size of the hole: it is the missing piece of the pattern.
    - Each 0 has the colour of a cell that is a whole number of periods away.
    Procedure:
    1. Find the smallest period for which all cells that are not 0 agree, in rows and in columns.
    2. Remember the colour for each place within a period.
    3. Fill the hole with these colours.
    """
    size = len(input_grid)
    for period in range(1, size + 1):
        tile = {}
        fits = True
        for r in range(size):
            for c in range(size):
                cell = input_grid[r][c]
                place = (r % period, c % period)
                if cell != 0 and tile.setdefault(place, cell) != cell:
                    fits = False
        if fits and len(tile) == period * period:
            break
    rows = [r for r in range(size) if 0 in input_grid[r]]
    cols = [c for c in range(size) if input_grid[rows[0]][c] == 0]
    result = []
    for r in rows:
        result.append([tile[r % period, c % period] for c in cols])
    return result
