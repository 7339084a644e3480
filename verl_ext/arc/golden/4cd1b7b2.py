def solve(input_grid):
    """
    Observations:
    - The input is 4 by 4 with the numbers 1 to 4 and some empty cells.
    - In the output the empty cells are filled.
    - Every row and every column has each of the numbers once.
    Procedure:
    1. Take the first empty cell and try the numbers that its row and its column do not have yet.
    2. Fill the rest in the same way, and go back to try the next number where the rest cannot be filled.
    """

    def fill(grid):
        """The grid with all cells filled, or None if that is impossible."""
        for r in range(4):
            for c in range(4):
                if grid[r][c]:
                    continue
                used = set(grid[r]) | {row[c] for row in grid}
                for number in range(1, 5):
                    if number in used:
                        continue
                    attempt = [list(row) for row in grid]
                    attempt[r][c] = number
                    filled = fill(attempt)
                    if filled is not None:
                        return filled
                # No number fits into this cell.
                return None
        return grid

    result = fill([list(row) for row in input_grid])
    return result
