def solve(input_grid):
    """
    Observations:
    - The input has filled rectangles of 5 on a ground of 0.
    - In the output the corners of each rectangle are 1, the rest of its border is 4, and its inside is 2.
    - A cell of the inside has 5 on all four sides, a border cell on three, and a corner cell on two.
    Procedure:
    1. For each 5, count its direct neighbours of colour 5.
    2. Write 2 for four neighbours, 4 for three, and 1 for two.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    colours = {4: 2, 3: 4, 2: 1}
    result = [[0] * width for _ in range(height)]
    for row in range(height):
        for col in range(width):
            if input_grid[row][col] != 5:
                continue
            count = 0
            for r, c in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
                if 0 <= r < height and 0 <= c < width and input_grid[r][c] == 5:
                    count += 1
            result[row][col] = colours[count]
    return result
