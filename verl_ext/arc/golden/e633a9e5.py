def solve(input_grid):
    """
    Observations:
    - The input is 3 by 3, the output 5 by 5.
    - The outer rows and columns of the input are there twice, the middle ones once.
    Procedure:
    1. Repeat the first and the last cell of each row.
    2. Repeat the first and the last of these rows.
    """
    wide = []
    for row in input_grid:
        wide.append([row[0]] + list(row) + [row[-1]])
    result = [list(wide[0])]
    for row in wide:
        result.append(list(row))
    result.append(list(wide[-1]))
    return result
