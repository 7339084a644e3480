def solve(input_grid):
    """
    Observations:
    - The output has the height of the input and twice its width.
    - The left half is the input.
    - The right half is the mirror image of the input, reflected from left to right.
    Procedure:
    1. For each row, append the same row reversed.
    """
    result = []
    for row in input_grid:
        result.append(row + row[::-1])
    return result
