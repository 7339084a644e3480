def solve(input_grid):
    """
    Observations:
    - Lines of 5 divide the grid into 3 by 3 squares, each with one colour in its middle.
    - The output fills every square with the colour that is 5 more.
    - The lines stay.
    Procedure:
    1. Find the squares between the lines of 5.
    2. The colour of a square is the one in it that is not 0.
    3. Fill the square with this colour plus 5.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    rows = [-1] + [r for r in range(height) if set(input_grid[r]) == {5}] + [height]
    cols = [-1] + [c for c in range(width) if {row[c] for row in input_grid} == {5}] + [width]
    result = [list(row) for row in input_grid]
    for top, bottom in zip(rows, rows[1:]):
        for left, right in zip(cols, cols[1:]):
            places = [(r, c) for r in range(top + 1, bottom) for c in range(left + 1, right)]
            colour = max(input_grid[r][c] for r, c in places)
            for r, c in places:
                result[r][c] = colour + 5
    return result
