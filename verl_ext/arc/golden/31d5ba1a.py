def solve(input_grid):
    """
    Observations:
    - The input is two pictures one above the other, the upper one in 9 and the lower one in 4.
    - The output is as large as one of them.
    - It has 6 where exactly one of the pictures has a cell.
    Procedure:
    1. Cut the input into its upper and lower half.
    2. Compare the cells of each place.
    3. Write 6 if one of the two is 0 and the other is not.
    """
    half = len(input_grid) // 2
    result = []
    for upper, lower in zip(input_grid[:half], input_grid[half:]):
        row = []
        for first, second in zip(upper, lower):
            row.append(6 if (first == 0) != (second == 0) else 0)
        result.append(row)
    return result
