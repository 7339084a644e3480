def solve(input_grid):
    """
    Observations:
    - The input has cells of colour 8, and two squares of 2 by 2 cells of colour 2; the output is one cell.
    - It is 8 if one can walk from one square to the other over coloured cells, and 0 if not.
    - A step leads to one of the eight cells around.
    Procedure:
    1. Start at the first cell of colour 2.
    2. Collect all cells that can be reached from it over cells that are not 0.
    3. If all cells of colour 2 are among them, return 8, else 0.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    twos = [(r, c) for r in range(height) for c in range(width) if input_grid[r][c] == 2]
    reached = [twos[0]]
    seen = {twos[0]}
    for row, col in reached:
        for r in range(max(row - 1, 0), min(row + 2, height)):
            for c in range(max(col - 1, 0), min(col + 2, width)):
                if input_grid[r][c] != 0 and (r, c) not in seen:
                    seen.add((r, c))
                    reached.append((r, c))
    joined = all(place in seen for place in twos)
    result = [[8 if joined else 0]]
    return result
