def solve(input_grid):
    """
    Observations:
    - The output is twice as large as the input.
    - Each 5 has become a 2 by 2 square with 1 on one diagonal and 2 on the other.
    - Empty cells stay empty.
    Procedure:
    1. For each row make two rows.
    2. Write 1 2 and below it 2 1 for a 5, and zeros for an empty cell.
    """
    result = []
    for row in input_grid:
        upper = []
        lower = []
        for cell in row:
            if cell == 5:
                upper += [1, 2]
                lower += [2, 1]
            else:
                upper += [0, 0]
                lower += [0, 0]
        result.append(upper)
        result.append(lower)
    return result
