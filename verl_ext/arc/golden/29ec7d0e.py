def solve(input_grid):
    """
    Observations:
    - The grid repeats a pattern in both directions.
    - Some rectangles of it are empty.
    - In the output the pattern goes on there, too.
    Procedure:
    1. Try sizes of the pattern from small to large.
    2. A size fits if cells at the same place never have different colours, and each place is seen somewhere.
    3. Fill the grid with the pattern of the first size that fits.
    """
    height = len(input_grid)
    width = len(input_grid[0])

    def pattern(down, right):
        """The colours of a pattern that repeats so, by place; None if the grid contradicts it."""
        colours = {}
        for r in range(height):
            for c in range(width):
                cell = input_grid[r][c]
                place = (r % down, c % right)
                if cell and colours.setdefault(place, cell) != cell:
                    return None
        return colours if len(colours) == down * right else None

    found = None
    # The smallest pattern first.
    for size in range(2, height + width):
        for down in range(1, size):
            right = size - down
            if found is None and down < height and right < width:
                colours = pattern(down, right)
                if colours is not None:
                    found = (down, right, colours)
    down, right, colours = found
    result = []
    for r in range(height):
        result.append([colours[(r % down, c % right)] for c in range(width)])
    return result
