def solve(input_grid):
    """
    Observations:
    - The input is 9 by 9 and consists of nine blocks of 3 by 3.
    - Each block is empty or filled with one colour, and some of its cells are disturbed by the colour 5.
    - The output is 3 by 3: the colour of each block without the disturbance.
    Procedure:
    1. Go through the blocks.
    2. Collect the cells of the block that are not 5.
    3. They have one colour, which is the cell of the output.
    """
    result = []
    for top in range(0, 9, 3):
        new_row = []
        for left in range(0, 9, 3):
            cells = [input_grid[top + r][left + c] for r in range(3) for c in range(3)]
            clean = [cell for cell in cells if cell != 5]
            new_row.append(clean[0])
        result.append(new_row)
    return result
