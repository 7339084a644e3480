def solve(input_grid):
    """
    Observations:
    - The input is full of single cells of all colours.
    - Somewhere among them is a filled rectangle of one colour.
    - The output has this rectangle alone.
    Procedure:
    1. Go through all rectangles of at least 2 by 2 cells that have a single colour.
    2. Keep the largest one.
    3. Draw it in an empty grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    largest = []
    for top in range(height):
        for left in range(width):
            colour = input_grid[top][left]
            if colour == 0:
                continue
            # A rectangle can only become narrower as rows are added.
            reach = width
            for bottom in range(top, height):
                end = left
                while end < reach and input_grid[bottom][end] == colour:
                    end += 1
                reach = end
                rows = range(top, bottom + 1)
                cols = range(left, reach)
                if len(rows) > 1 and len(cols) > 1 and len(rows) * len(cols) > len(largest):
                    largest = [(r, c) for r in rows for c in cols]
    result = [[0] * width for _ in range(height)]
    for r, c in largest:
        result[r][c] = input_grid[r][c]
    return result
