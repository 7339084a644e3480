def solve(input_grid):
    """
    Observations:
    - Some rows have a coloured cell at each end; all other cells are 0.
    - In these rows the left colour fills the left half, and the right colour the right half.
    - The middle cell between the halves is 5.
    - Empty rows stay empty.
    Procedure:
    1. For each row, read the colours of its two ends.
    2. If the left one is not 0, build the row from the left half, a 5 and the right half.
    """
    half = len(input_grid[0]) // 2
    result = []
    for row in input_grid:
        if row[0] != 0:
            result.append([row[0]] * half + [5] + [row[-1]] * half)
        else:
            result.append(list(row))
    return result
