def solve(input_grid):
    """
    Observations:
    - The grid consists of nine 3 by 3 squares, and one of them has a picture.
    - In the output a copy of the picture is in every square that stands where the picture has a cell.
    - The other squares are empty.
    Procedure:
    1. Find the square with the picture by one of its coloured cells.
    2. For each cell of the picture choose the square with the same place among the nine.
    3. Copy the picture into it.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    cells = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c]]
    top = cells[0][0] // 3 * 3
    left = cells[0][1] // 3 * 3
    picture = [list(row[left : left + 3]) for row in input_grid[top : top + 3]]
    result = [[0] * width for _ in range(height)]
    for row in range(3):
        for col in range(3):
            if picture[row][col] == 0:
                continue
            for r in range(3):
                for c in range(3):
                    result[row * 3 + r][col * 3 + c] = picture[r][c]
    return result
