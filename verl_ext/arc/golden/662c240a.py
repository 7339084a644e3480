def solve(input_grid):
    """
    Observations:
    - The input has three square blocks, one below the other.
    - The output is one of the blocks.
    - Two of the blocks are symmetric about their main diagonal; the block of the output is not.
    Procedure:
    1. Cut the grid into blocks that are as tall as they are wide.
    2. Compare each block with its transpose.
    3. Return the block that differs from it.
    """
    size = len(input_grid[0])
    for top in range(0, len(input_grid), size):
        block = [list(row) for row in input_grid[top : top + size]]
        transpose = [list(col) for col in zip(*block)]
        if block != transpose:
            result = block
    return result
