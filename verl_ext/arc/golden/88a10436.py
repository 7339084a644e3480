def solve(input_grid):
    """
    Observations:
    - The input has one picture of several colours and a single cell of colour 5.
    - In the output there is a copy of the picture where the 5 was.
    - The middle of the copy is at the place of the 5.
    Procedure:
    1. Find the 5 and the bounding box of the other cells.
    2. Shift the picture so that its middle comes to the 5.
    3. Draw the copy, and keep the picture.
    """
    picture = []
    row = 0
    col = 0
    for r, line in enumerate(input_grid):
        for c, cell in enumerate(line):
            if cell == 5:
                row, col = r, c
            elif cell:
                picture.append((r, c, cell))
    top = min(r for r, c, cell in picture)
    bottom = max(r for r, c, cell in picture)
    left = min(c for r, c, cell in picture)
    right = max(c for r, c, cell in picture)
    down = row - (top + bottom) // 2
    across = col - (left + right) // 2
    result = [list(line) for line in input_grid]
    result[row][col] = 0
    for r, c, cell in picture:
        result[r + down][c + across] = cell
    return result
