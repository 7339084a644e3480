def solve(input_grid):
    """
    Observations:
    - The input is made of rectangles of one colour that fill it in stripes.
    - Neighbouring rows that are equal appear only once in the output.
    - Neighbouring columns that are equal appear only once in the output.
    - So each rectangle shrinks to one cell.
    Procedure:
    1. Keep a row only if it differs from the row kept before it.
    2. Transpose, do the same to the columns, and transpose back.
    """
    grid = [list(row) for row in input_grid]
    for _ in range(2):
        kept = []
        for row in grid:
            if not kept or row != kept[-1]:
                kept.append(row)
        grid = [list(col) for col in zip(*kept)]
    result = grid
    return result
