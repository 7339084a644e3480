def solve(input_grid):
    """
    Observations:
    - Straight lines in one colour divide the grid into equal parts.
    - All parts are of one colour, but one of them has a cell of another colour.
    - The output is this part.
    Procedure:
    1. Find a line: a row of a single colour, or a column of one.
    2. Cut the grid at the rows and columns that are lines.
    3. Return the part that is unlike all others.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    rows = [r for r in range(height) if len(set(input_grid[r])) == 1]
    cols = [c for c in range(width) if len({row[c] for row in input_grid}) == 1]
    # A part lies between two lines, or between a line and the edge.
    tops = [-1] + rows + [height]
    lefts = [-1] + cols + [width]
    parts = []
    for top, bottom in zip(tops, tops[1:]):
        for left, right in zip(lefts, lefts[1:]):
            parts.append([list(row[left + 1 : right]) for row in input_grid[top + 1 : bottom]])
    result = next(part for part in parts if parts.count(part) == 1)
    return result
