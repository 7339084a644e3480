def solve(input_grid):
    """
    Observations:
    - The input has one 2 by 2 square of four colours.
    - In the output each colour also fills a 2 by 2 square beyond the opposite corner of this square.
    - What would lie outside the grid is left out.
    Procedure:
    1. Find the upper left cell of the square.
    2. For each of its cells find the 2 by 2 block diagonally beyond the opposite cell.
    3. Write the colour of the cell at those places of the block that are in the grid.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    filled = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c]]
    top = min(r for r, c in filled)
    left = min(c for r, c in filled)
    result = [list(row) for row in input_grid]
    for down in (0, 1):
        for right in (0, 1):
            colour = input_grid[top + down][left + right]
            # The opposite block: two rows below for an upper cell, two rows above for a lower one.
            first_row = top + 2 if down == 0 else top - 2
            first_col = left + 2 if right == 0 else left - 2
            for r in (first_row, first_row + 1):
                for c in (first_col, first_col + 1):
                    if 0 <= r < height and 0 <= c < width:
                        result[r][c] = colour
    return result
