def solve(input_grid):
    """
    Observations:
    - The output is as high as the input and four times as wide.
    - It has the input and its mirror image by turns, beginning with the mirror image.
    Procedure:
    1. Reverse each row.
    2. Put the reversed row, the row, and both once more behind each other.
    """
    result = []
    for row in input_grid:
        mirrored = list(reversed(row))
        pair = mirrored + list(row)
        result.append(pair + pair)
    return result
