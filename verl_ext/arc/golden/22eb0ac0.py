def solve(input_grid):
    """
    Observations:
    - Some rows have a coloured cell at their left end and one at their right end.
    - Where both ends have the same colour, the whole row gets this colour.
    - All other rows are unchanged.
    Procedure:
    1. Compare the first and the last cell of each row.
    2. If they are equal, fill the row with their colour; an empty row stays empty by this.
    3. Else copy the row.
    """
    result = []
    for row in input_grid:
        if row[0] == row[-1]:
            result.append([row[0]] * len(row))
        else:
            result.append(list(row))
    return result
