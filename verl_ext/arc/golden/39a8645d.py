def solve(input_grid):
    """
    Observations:
    - The input has several small figures, some of which are alike.
    - One colour has more figures than the others.
    - The output is the figure of this colour, cut out.
    Procedure:
    1. From each coloured cell that was not seen yet, walk through its figure; neighbours at a corner belong to it.
    2. Count the figures of each colour.
    3. Cut a figure of the most frequent colour out.
    """
    height = len(input_grid)
    width = len(input_grid[0])
    seen = set()
    figures = {}
    for row in range(height):
        for col in range(width):
            colour = input_grid[row][col]
            if colour == 0 or (row, col) in seen:
                continue
            seen.add((row, col))
            figure = [(row, col)]
            # The list grows while it is gone through.
            for r, c in figure:
                for y in range(max(r - 1, 0), min(r + 2, height)):
                    for x in range(max(c - 1, 0), min(c + 2, width)):
                        if input_grid[y][x] == colour and (y, x) not in seen:
                            seen.add((y, x))
                            figure.append((y, x))
            figures.setdefault(colour, []).append(figure)
    most = max(figures, key=lambda colour: len(figures[colour]))
    cells = figures[most][0]
    top = min(r for r, c in cells)
    left = min(c for r, c in cells)
    bottom = max(r for r, c in cells)
    right = max(c for r, c in cells)
    result = [list(row[left : right + 1]) for row in input_grid[top : bottom + 1]]
    return result
