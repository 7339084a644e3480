def solve(input_grid):
    """
    Observations:
    - The output is twice as wide and twice as high as the square input.
    - Its quarters are the input, turned once more by a quarter clockwise from one to the next.
    - The order is upper left, upper right, lower right, lower left.
    Procedure:
    1. Turn the input clockwise three times, and keep every result.
    2. Put the input beside the first turn, and the third turn beside the second one.
    3. Put the second pair below the first.
    """
    turns = [[list(row) for row in input_grid]]
    for _ in range(3):
        # Columns, read from the bottom, are the rows of the turned grid.
        turns.append([list(column) for column in zip(*reversed(turns[-1]))])
    result = []
    for left, right in ((turns[0], turns[1]), (turns[3], turns[2])):
        for first, second in zip(left, right):
            result.append(first + second)
    return result
