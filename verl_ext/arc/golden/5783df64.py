def solve(input_grid):
    """
    Observations:
    - The input can be cut into three by three equal squares.
    - Each square has one coloured cell.
    - The output is 3 by 3 and has the colours of the squares at their places.
    Procedure:
    1. The side of a square is a third of the input's.
    2. Find in each square the cell that is not 0.
    3. Write its colour at the place of the square.
    """
    side = len(input_grid) // 3
    result = []
    for top in range(0, 3 * side, side):
        line = []
        for left in range(0, 3 * side, side):
            square = [row[left : left + side] for row in input_grid[top : top + side]]
            line.append(max(cell for row in square for cell in row))
        result.append(line)
    return result
