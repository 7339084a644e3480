def solve(input_grid):
    """
    Observations:
    - The input is 5 by 5: four blocks of 2 by 2, separated by an empty row and an empty column.
    - Three of the blocks are equal, and one is different.
    - The output is the block that is different.
    Procedure:
    1. Cut the four blocks out of the corners.
    2. Return the block that occurs once.
    """
    blocks = []
    for top in (0, 3):
        for left in (0, 3):
            blocks.append([row[left : left + 2] for row in input_grid[top : top + 2]])
    for block in blocks:
        if blocks.count(block) == 1:
            result = block
    return result
