def solve(input_grid):
    """
    Observations:
    - The input is square, and the output is twice as tall and twice as wide.
    - The top left quarter of the output is the input.
    - Going clockwise around the quarters, the picture is turned clockwise by another quarter turn each time.
    - So the top right is turned once, the bottom right twice, and the bottom left three times.
    Procedure:
    1. Turn the grid once, twice and three times.
    2. Put the input and the first turn side by side.
    3. Put the third turn and the second turn side by side, below.
    """

    def turn(grid):
        return [list(col) for col in zip(*grid[::-1])]

    once = turn(input_grid)
    twice = turn(once)
    thrice = turn(twice)
    upper = [a + b for a, b in zip(input_grid, once)]
    lower = [a + b for a, b in zip(thrice, twice)]
    result = upper + lower
    return result
