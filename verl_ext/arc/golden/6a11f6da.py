def solve(input_grid):
    """
    Observations:
    - The input is three pictures one above the other: 1, 8 and 6.
    - The output lays them over each other.
    - Where several have a cell, 6 covers 1, and 1 covers 8.
    Procedure:
    1. Cut the input into thirds.
    2. For each place look at the lowest third, then at the first, then at the middle one.
    3. Write the first cell that is not 0.
    """
    third = len(input_grid) // 3
    first = input_grid[:third]
    second = input_grid[third : 2 * third]
    last = input_grid[2 * third :]
    result = []
    for one, two, three in zip(first, second, last):
        row = []
        for upper, middle, lower in zip(one, two, three):
            row.append(lower or upper or middle)
        result.append(row)
    return result
