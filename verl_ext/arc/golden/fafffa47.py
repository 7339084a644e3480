def solve(input_grid):
    """
    Observations:
    - The upper half of the input uses colour 9, the lower half colour 1.
    - The output has the size of one half.
    - A cell of the output is 2 where both halves are 0, and 0 elsewhere.
    Procedure:
    1. Cut the grid into its upper and its lower half.
    2. Compare the cells at the same place.
    3. Write 2 if both are 0, else 0.
    """
    half = len(input_grid) // 2
    result = []
    for row in range(half):
        upper = input_grid[row]
        lower = input_grid[row + half]
        result.append([2 if a == 0 and b == 0 else 0 for a, b in zip(upper, lower)])
    return result
