def solve(input_grid):
    """
    Observations:
    - The input has three objects of colour 8; the cells of an object touch at sides or at corners.
    - Two of the objects have the same shape, and one differs from them.
    - In the output the two equal objects are 1, and the odd one is 2.
    Procedure:
    1. Collect the cells of each object.
    2. Describe its shape: the sorted places, counted from its top left corner.
    3. Write 2 in an object whose shape occurs once, and 1 in all others.
    """
    places = {(r, c) for r, row in enumerate(input_grid) for c, cell in enumerate(row) if cell == 8}
    groups = []
    shapes = []
    while places:
        group = [places.pop()]
        for row, col in group:
            for r in range(row - 1, row + 2):
                for c in range(col - 1, col + 2):
                    if (r, c) in places:
                        places.remove((r, c))
                        group.append((r, c))
        top = min(r for r, c in group)
        left = min(c for r, c in group)
        groups.append(group)
        shapes.append(sorted((r - top, c - left) for r, c in group))
    result = [list(row) for row in input_grid]
    for group, shape in zip(groups, shapes):
        for r, c in group:
            result[r][c] = 2 if shapes.count(shape) == 1 else 1
    return result
