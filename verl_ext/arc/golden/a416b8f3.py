def solve(input_grid):
    """
    Observations:
    - The output has the height of the input and twice its width.
    - The left half and the right half of the output are both equal to the input.
    Procedure:
    1. Write each row twice, one copy right after the other.
    """
    result = [row + row for row in input_grid]
    return result
