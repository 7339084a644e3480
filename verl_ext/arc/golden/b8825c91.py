def solve(input_grid):
    """
    Observations:
    - The input is its own mirror image, sideways and upside down, but for some areas of 4 that cover it.
    - In the output the covered cells are as the mirror images say.
    Procedure:
    1. For each 4 look at the same place counted from the right, from the bottom, and from both.
    2. Write the first of these cells that is not 4.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    result = []
    for r in range(height):
        row = []
        for c in range(width):
            images = (
                input_grid[r][c],
                input_grid[r][width - 1 - c],
                input_grid[height - 1 - r][c],
                input_grid[height - 1 - r][width - 1 - c],
            )
            cell = 4
            for image in images:
                if image != 4:
                    cell = image
                    break
            row.append(cell)
        result.append(row)
    return result
