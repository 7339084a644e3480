def solve(input_grid):
    """
    Observations:
    - The output has the same size and the same layout as the input; only the colours change.
    - The change of a colour is the same in every example.
    - The colours change in pairs, each into its partner: 1 and 5, 2 and 6, 3 and 4, 8 and 9.
    Procedure:
    1. Write the pairs down, and make a table that works in both directions.
    2. Replace every cell by its partner.
    """
    pairs = [(1, 5), (2, 6), (3, 4), (8, 9)]
    partner = {}
    for one, other in pairs:
        partner[one] = other
        partner[other] = one
    result = []
    for row in input_grid:
        result.append([partner.get(cell, cell) for cell in row])
    return result
