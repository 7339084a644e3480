def solve(input_grid):
    """
    Observations:
    - Rectangles of different colours stand on the lowest row.
    - In the output each has moved up by as many rows as it is high.
    Procedure:
    1. Find the rows of each colour.
    2. Its height is their number.
    3. Write each of its cells so many rows higher.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    places = {}
    for r in range(height):
        for c in range(width):
            if input_grid[r][c]:
                places.setdefault(input_grid[r][c], []).append((r, c))
    result = [[0] * width for _ in range(height)]
    for colour, found in places.items():
        rows = {r for r, c in found}
        up = len(rows)
        for r, c in found:
            if r - up >= 0:
                result[r - up][c] = colour
    return result
