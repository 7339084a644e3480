def solve(input_grid):
    """
    Observations:
    - The input is two pictures one above the other, the upper one in 3 and the lower one in 5.
    - The output is as large as one of them.
    - It has 4 where at least one of them has a cell.
    Procedure:
    1. Cut the input into its upper and lower half.
    2. Compare the cells at each place.
    3. Write 4 unless both are 0.
    """
    half = len(input_grid) // 2
    result = []
    for upper, lower in zip(input_grid[:half], input_grid[half:]):
        row = []
        for first, second in zip(upper, lower):
            row.append(4 if first or second else 0)
        result.append(row)
    return result
