def solve(input_grid):
    """
    Observations:
    - The upper left corner has a 3 by 3 picture; a column of 5 stands to the right of it.
    - Right of the column are single cells of colour 1, each in the middle of a 3 by 3 square.
    - In the output each of these squares is a copy of the picture.
    Procedure:
    1. Take the picture from the upper left corner.
    2. For each 1 write the picture at the 3 by 3 cells around it.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    picture = [list(row[:3]) for row in input_grid[:3]]
    line = next(c for c in range(width) if all(row[c] == 5 for row in input_grid))
    result = [list(row) for row in input_grid]
    for row in range(height):
        for col in range(line + 1, width):
            if input_grid[row][col] != 1:
                continue
            for r in range(3):
                for c in range(3):
                    result[row - 1 + r][col - 1 + c] = picture[r][c]
    return result
