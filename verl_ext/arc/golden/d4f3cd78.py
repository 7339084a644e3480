def solve(input_grid):
    """
    Observations:
    - The input has a rectangular frame of 5 with one gap.
    - In the output the inside is 8.
    - The 8 also flow through the gap and on in a straight line to the edge of the grid.
    Procedure:
    1. Find the bounding box of the frame and fill its empty cells, the gap included.
    2. The gap is the empty cell on the frame; it says in which direction the line leaves.
    3. Go on from the gap in this direction to the edge, and write 8.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    frame = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 5]
    top = min(r for r, c in frame)
    bottom = max(r for r, c in frame)
    left = min(c for r, c in frame)
    right = max(c for r, c in frame)
    result = [list(row) for row in input_grid]
    for row in range(top, bottom + 1):
        for col in range(left, right + 1):
            if input_grid[row][col] == 5:
                continue
            result[row][col] = 8
            # Only the gap lies on a side of the frame.
            down = (row == bottom) - (row == top)
            across = (col == right) - (col == left)
            r = row
            c = col
            while (down or across) and 0 <= r < height and 0 <= c < width:
                result[r][c] = 8
                r += down
                c += across
    return result
