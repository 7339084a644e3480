def solve(input_grid):
    """
    Observations:
    - In some rows of the input a 1 stands to the left of an 8.
    - The cells between the two matter, and there are equally many in all these rows.
    - The output has these cells, a row for each of the rows, from top to bottom.
    Procedure:
    1. For each row that has both a 1 and an 8 find their columns.
    2. Cut out the cells between them.
    """
    result = []
    for row in input_grid:
        if 1 in row and 8 in row:
            start = row.index(1)
            end = row.index(8)
            if start < end:
                result.append(list(row[start + 1 : end]))
    return result
