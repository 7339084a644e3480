def solve(input_grid):
    """
    Observations:
    - The input has the frame of a rectangle with a gap in one of its sides.
    - In the output the inside of the frame and the gap are 4.
    - Lines of 4 leave the gap straight outwards and go to the edge of the grid.
    - From both ends of the gap, diagonal lines of 4 spread outwards too.
    Procedure:
    1. Find the rectangle, and write 4 in all its cells of colour 0; those on the border are the gap.
    2. Find the side that the gap is in: it gives the direction outwards.
    3. From each cell of the gap, draw a line in this direction.
    4. From the first and the last cell of the gap, draw a diagonal line that moves sideways too.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    frame = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] != 0]
    top, bottom = min(r for r, c in frame), max(r for r, c in frame)
    left, right = min(c for r, c in frame), max(c for r, c in frame)
    result = [list(row) for row in input_grid]
    gap = []
    for r in range(top, bottom + 1):
        for c in range(left, right + 1):
            if input_grid[r][c] == 0:
                result[r][c] = 4
                if r in (top, bottom) or c in (left, right):
                    gap.append((r, c))
    first, last = gap[0], gap[-1]
    down = (first[0] == last[0] == bottom) - (first[0] == last[0] == top)
    over = 0 if down else (first[1] == right) - (first[1] == left)
    # The gap runs from `first` to `last` along the side, so sideways is down or to the right.
    side_down, side_over = abs(over), abs(down)
    rays = [(cell, down, over) for cell in gap]
    rays.append((first, down - side_down, over - side_over))
    rays.append((last, down + side_down, over + side_over))
    for (r, c), step_down, step_over in rays:
        while 0 <= r < height and 0 <= c < width:
            result[r][c] = 4
            r, c = r + step_down, c + step_over
    return result
