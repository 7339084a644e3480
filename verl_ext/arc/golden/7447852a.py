def solve(input_grid):
    """
    Observations:
    - A zigzag of colour 2 runs from the left edge to the right edge and cuts the cells of 0 into areas.
    - The areas lie alternately below and above the zigzag.
    - From left to right, the first area becomes 4, then every third one.
    Procedure:
    1. Go through the columns from left to right, and walk from each new cell of 0 through its whole area.
    2. Count the areas in the order in which they are found.
    3. Write 4 in the first one, the fourth one and so on.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    seen = set()
    count = 0
    for col in range(width):
        for row in range(height):
            if input_grid[row][col] != 0 or (row, col) in seen:
                continue
            seen.add((row, col))
            area = [(row, col)]
            for r, c in area:
                for y, x in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                    inside = 0 <= y < height and 0 <= x < width
                    if inside and input_grid[y][x] == 0 and (y, x) not in seen:
                        seen.add((y, x))
                        area.append((y, x))
            if count % 3 == 0:
                for r, c in area:
                    result[r][c] = 4
            count += 1
    return result
