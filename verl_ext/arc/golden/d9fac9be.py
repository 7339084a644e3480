def solve(input_grid):
    """
    Observations:
    - The input has scattered cells of two colours, and one of the colours forms a ring of eight cells.
    - The cell in the centre of the ring has the other colour.
    - The output is a single cell with the colour of this centre.
    Procedure:
    1. Go through all cells that have eight neighbours.
    2. Test whether the neighbours all have one colour that is neither 0 nor the colour of the cell.
    3. Return the colour of the cell that passes the test.
    """
    for row in range(1, len(input_grid) - 1):
        for col in range(1, len(input_grid[0]) - 1):
            centre = input_grid[row][col]
            around = [cell for line in input_grid[row - 1 : row + 2] for cell in line[col - 1 : col + 2]]
            around.remove(centre)
            if len(set(around)) == 1 and around[0] not in (0, centre) and centre != 0:
                result = [[centre]]
    return result
