def solve(input_grid):
    """
    Observations:
    - The input is two equal pictures, one above the other, in 3 and 1.
    - The output is as large as one of them.
    - It has 2 where both pictures are empty.
    Procedure:
    1. Cut the input into its upper and lower half.
    2. Compare the two cells of each place.
    3. Write 2 where both are 0, else 0.
    """
    half = len(input_grid) // 2
    result = []
    for upper, lower in zip(input_grid[:half], input_grid[half:]):
        row = []
        for first, second in zip(upper, lower):
            row.append(2 if first == 0 and second == 0 else 0)
        result.append(row)
    return result
