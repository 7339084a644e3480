def solve(input_grid):
    """
    Observations:
    - The input has three parts of 3 by 3, separated by columns of 5; only the left part is filled.
    - In the output the left part and the columns of 5 are unchanged.
    - The middle part is the left part after a quarter turn clockwise.
    - The right part is the middle part after another quarter turn clockwise.
    Procedure:
    1. Take the left part.
    2. Turn it clockwise once for the middle part, and once more for the right part.
    3. Join the rows of the three parts with a 5 between them.
    """
    size = input_grid[0].index(5)
    left = [row[:size] for row in input_grid]
    middle = [list(col) for col in zip(*left[::-1])]
    right = [list(col) for col in zip(*middle[::-1])]
    result = []
    for a, b, c in zip(left, middle, right):
        result.append(a + [5] + b + [5] + c)
    return result
