def solve(input_grid):
    """
    Observations:
    - The input has four corner pieces: three cells of one colour in a square of 2 by 2 with one empty cell.
    - The output is 4 by 4, with one piece in each corner.
    - The pieces are not turned; together they frame the empty centre.
    - So the empty cell of each piece is on the side of the centre.
    Procedure:
    1. For each colour, cut out the square of its piece.
    2. Find the empty cell of the square.
    3. Put the square into the corner of the output that lies opposite its empty cell.
    """
    colours = {cell for row in input_grid for cell in row if cell != 0}
    result = [[0] * 4 for _ in range(4)]
    for colour in colours:
        top = min(r for r, row in enumerate(input_grid) if colour in row)
        left = min(c for c, col in enumerate(zip(*input_grid)) if colour in col)
        square = [row[left : left + 2] for row in input_grid[top : top + 2]]
        for r in range(2):
            for c in range(2):
                if square[r][c] != colour:
                    new_top = 2 - 2 * r
                    new_left = 2 - 2 * c
        for r in range(2):
            for c in range(2):
                if square[r][c] == colour:
                    result[new_top + r][new_left + c] = colour
    return result
