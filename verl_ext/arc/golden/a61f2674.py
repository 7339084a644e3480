def solve(input_grid):
    """
    Observations:
    - The input has vertical bars of 5 that stand on the bottom edge.
    - In the output only two bars are left.
    - The tallest bar is now 1, and the shortest bar is now 2.
    Procedure:
    1. Measure the height of the bar in each column that has one.
    2. Find the column of the tallest and of the shortest bar.
    3. Draw these two bars in an empty grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    bars = {}
    for col in range(width):
        count = sum(1 for row in input_grid if row[col] == 5)
        if count > 0:
            bars[col] = count
    tallest = max(bars, key=bars.get)
    shortest = min(bars, key=bars.get)
    result = [[0] * width for _ in range(height)]
    for col, colour in ((tallest, 1), (shortest, 2)):
        for row in range(height - bars[col], height):
            result[row][col] = colour
    return result
