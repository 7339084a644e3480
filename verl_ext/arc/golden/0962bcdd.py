def solve(input_grid):
    """
    Observations:
    - The input has plus signs: a centre of one colour, and four cells of another colour around it.
    - In the output the arms of a plus sign are two cells long instead of one.
    - From the centre, diagonal lines of the centre's colour go two cells far in all four directions.
    Procedure:
    1. Find the centres: coloured cells whose four neighbours all have one other colour.
    2. Write the colour of the neighbours at distance 1 and 2 in the four straight directions.
    3. Write the colour of the centre at distance 1 and 2 in the four diagonal directions.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for row in range(1, height - 1):
        for col in range(1, width - 1):
            center = input_grid[row][col]
            beside = {input_grid[row - 1][col], input_grid[row + 1][col]}
            beside |= {input_grid[row][col - 1], input_grid[row][col + 1]}
            # Only a centre has four neighbours of one colour.
            if center == 0 or 0 in beside or len(beside) != 1:
                continue
            arm = input_grid[row - 1][col]
            for r in range(max(row - 2, 0), min(row + 3, height)):
                for c in range(max(col - 2, 0), min(col + 3, width)):
                    down, over = abs(r - row), abs(c - col)
                    if down == over:
                        result[r][c] = center
                    elif down == 0 or over == 0:
                        result[r][c] = arm
    return result
