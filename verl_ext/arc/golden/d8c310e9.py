def solve(input_grid):
    """
    Observations:
    - The lowest rows have a pattern that begins at the left and repeats sideways.
    - To the right of it they are empty.
    - In the output the pattern goes on to the right edge.
    Procedure:
    1. Find how far the pattern reaches, in columns.
    2. Find the smallest period with which the columns repeat so far.
    3. Write in each column what the column one period before it has.
    """
    width = len(input_grid[0])
    filled = [c for c in range(width) if any(row[c] for row in input_grid)]
    end = max(filled) + 1
    columns = [[row[c] for row in input_grid] for c in range(end)]
    period = 1
    while any(columns[c] != columns[c - period] for c in range(period, end)):
        period += 1
    result = []
    for row in input_grid:
        result.append([row[c % period] for c in range(width)])
    return result
