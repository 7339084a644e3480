def solve(input_grid):
    """
    Observations:
    - A row and a column of 1 split the input into four quarters with the colours 7, 4, 8 and 6.
    - The output is as large as a quarter: the quarters are laid over each other.
    - Where several are coloured, the upper left wins over the upper right.
    - The upper right wins over the lower left, and the lower left over the lower right.
    Procedure:
    1. Find the size of a quarter.
    2. Put the quarters into the output from the weakest to the strongest.
    3. Each coloured cell overwrites what is there.
    """
    size = len(input_grid) // 2
    result = [[0] * size for _ in range(size)]
    far = size + 1
    for top, left in ((far, far), (far, 0), (0, far), (0, 0)):
        for r in range(size):
            for c in range(size):
                cell = input_grid[top + r][left + c]
                if cell != 0:
                    result[r][c] = cell
    return result
