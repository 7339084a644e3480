def solve(input_grid):
    """
    Observations:
    - The input is two pictures side by side, the left one in 6 and the right one in 5.
    - The output is as large as one of them.
    - It has 4 where both are empty.
    Procedure:
    1. Cut each row in the middle.
    2. Write 4 where the cells of both halves are 0, else 0.
    """
    half = len(input_grid[0]) // 2
    result = []
    for row in input_grid:
        cells = []
        for left, right in zip(row[:half], row[half:]):
            cells.append(4 if left == 0 and right == 0 else 0)
        result.append(cells)
    return result
