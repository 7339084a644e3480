def solve(input_grid):
    """
    Observations:
    - The input has squares that consist of a ring of one colour, one cell thick, and a core of another colour.
    - In the output the two colours of a square have changed places.
    - On each of its four sides there is an added rectangle of the colour that the ring had.
    - An added rectangle is as long as the side and as thick as the core is wide.
    Procedure:
    1. Find the top left cell of each square: it is coloured, the cells above it and left of it are 0.
    2. Walk to the right to get the side of the square.
    3. Write the outer colour in the cells around the square, except in the corner areas.
    4. Inside the square, write the core's colour on the ring and the ring's colour in the core.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = [list(row) for row in input_grid]
    for top in range(height - 2):
        for left in range(width - 2):
            above = input_grid[top - 1][left] if top > 0 else 0
            before = input_grid[top][left - 1] if left > 0 else 0
            outer = input_grid[top][left]
            if outer == 0 or above != 0 or before != 0:
                continue
            size = 1
            while left + size < width and input_grid[top][left + size] == outer:
                size += 1
            core = input_grid[top + 1][left + 1]
            thick = size - 2
            for r in range(max(top - thick, 0), min(top + size + thick, height)):
                for c in range(max(left - thick, 0), min(left + size + thick, width)):
                    in_rows = top <= r < top + size
                    in_cols = left <= c < left + size
                    if in_rows and in_cols:
                        result[r][c] = core if input_grid[r][c] == outer else outer
                    elif in_rows or in_cols:
                        result[r][c] = outer
    return result
