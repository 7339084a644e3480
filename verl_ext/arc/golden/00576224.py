def solve(input_grid):
    """
    Observations:
    - The output is three times as wide and three times as high as the 2 by 2 input.
    - Each row of the input is repeated three times across.
    - The middle third has the rows mirrored sideways.
    Procedure:
    1. Repeat each row three times.
    2. Do the same with the reversed rows.
    3. Put the plain rows, the reversed ones and the plain ones below each other.
    """
    plain = []
    mirrored = []
    for row in input_grid:
        plain.append(list(row) * 3)
        mirrored.append(list(reversed(row)) * 3)
    result = plain + mirrored + [list(row) for row in plain]
    return result
