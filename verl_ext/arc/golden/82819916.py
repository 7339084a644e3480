def solve(input_grid):
    """
    Observations:
    - One row of the input is a pattern of two colours over the whole width.
    - Other rows have only the beginning of the same pattern, in two other colours.
    - In the output these rows are complete.
    Procedure:
    1. Find the row without empty cells.
    2. For each row that has begun, note which of its colours stands for which colour of the complete row.
    3. Write the row with these colours.
    """
    complete = next(row for row in input_grid if 0 not in row)
    result = []
    for row in input_grid:
        colours = {}
        for own, model in zip(row, complete):
            if own:
                colours[model] = own
        if colours:
            result.append([colours[model] for model in complete])
        else:
            result.append(list(row))
    return result
