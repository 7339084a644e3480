def solve(input_grid):
    """
    Observations:
    - The input is 3 by 3, the output 9 by 9: a 3 by 3 arrangement of blocks.
    - Each block belongs to one cell of the input.
    - Where that cell is coloured, the block is a copy of the whole input.
    - Where it is 0, the block is empty.
    Procedure:
    1. Go through all cells of the output; find the block and the place inside the block.
    2. If the input cell of the block is not 0, copy the input cell of the place, else write 0.
    """
    size = len(input_grid)
    result = []
    for r in range(size * size):
        new_row = []
        for c in range(size * size):
            block = input_grid[r // size][c // size]
            place = input_grid[r % size][c % size]
            new_row.append(place if block != 0 else 0)
        result.append(new_row)
    return result
