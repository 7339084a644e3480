def solve(input_grid):
    """
    Observations:
    - The output is twice as wide and three times as tall as the input.
    - The right half of each output row is an input row, and the left half is the same row reversed.
    - The output is three bands of the height of the input.
    - The middle band has the rows in their order; the first and the third band have them upside down.
    Procedure:
    1. Build the band: for each row, the reversed row followed by the row.
    2. Stack the band upside down, the band, and the band upside down again.
    """
    band = [row[::-1] + row for row in input_grid]
    result = []
    for part in (band[::-1], band, band[::-1]):
        for row in part:
            result.append(list(row))
    return result
