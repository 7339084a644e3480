def solve(input_grid):
    """
    Observations:
    - Lines of 2 divide the empty ground into rectangles.
    - In the output the largest one is 1 and the smallest ones are 8.
    - If several are smallest, all of them are 8.
    Procedure:
    1. From each 0 that was not seen yet, walk through its whole area.
    2. Compare the numbers of cells.
    3. Fill the area with the most with 1 and those with the fewest with 8.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    seen = set()
    areas = []
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] or (row, col) in seen:
                continue
            seen.add((row, col))
            area = [(row, col)]
            # The list grows while it is gone through.
            for r, c in area:
                for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                    inside = 0 <= y < height and 0 <= x < width
                    if inside and input_grid[y][x] == 0 and (y, x) not in seen:
                        seen.add((y, x))
                        area.append((y, x))
            areas.append(area)
    sizes = [len(area) for area in areas]
    result = [list(row) for row in input_grid]
    for area in areas:
        for r, c in area:
            if len(area) == max(sizes):
                result[r][c] = 1
            elif len(area) == min(sizes):
                result[r][c] = 8
    return result
