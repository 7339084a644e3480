def solve(input_grid):
    """
    Observations:
    - The input consists of nested square rings, each of one colour.
    - The output has the same rings in reverse order of colours.
    - The innermost colour is now outside, and the outermost one inside.
    Procedure:
    1. The number of a cell's ring is its distance from the nearest edge.
    2. List the colours of the rings from the outside to the inside.
    3. Write in each ring the colour of the ring that is as far from the inside as it is from the outside.
    """
    side = len(input_grid)
    num_rings = (side + 1) // 2
    colours = [input_grid[i][i] for i in range(num_rings)]
    result = []
    for r in range(side):
        row = []
        for c in range(side):
            ring = min(r, c, side - 1 - r, side - 1 - c)
            row.append(colours[num_rings - 1 - ring])
        result.append(row)
    return result
