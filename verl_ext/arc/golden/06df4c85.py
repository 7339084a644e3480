def solve(input_grid):
    """
    Observations:
    - Lines of one colour cut the grid into small panels of two by two cells; a panel is 0 or has one colour.
    - If two panels of the same colour are in one row of panels, all panels between them get this colour.
    - The same holds for columns of panels; the lines stay.
    - Only neighbouring coloured panels are joined: one with another colour between them ends the connection.
    Procedure:
    1. Find the distance of the lines, and read the colour of every panel.
    2. In each row of panels, go from each coloured panel to the next coloured one on its right.
    3. If the two colours are the same, note it for the panels between them; likewise downwards.
    4. Write the noted colours in all cells of the panels.
    """
    size = next(r for r, row in enumerate(input_grid) if len(set(row)) == 1 and row[0] != 0)
    step = size + 1
    panels = [row[::step] for row in input_grid[::step]]
    count = len(panels)
    filled = [list(row) for row in panels]
    for row in range(count):
        for col in range(count):
            color = panels[row][col]
            if color == 0:
                continue
            for down, over in ((0, 1), (1, 0)):
                way = []
                r, c = row + down, col + over
                while r < count and c < count and panels[r][c] == 0:
                    way.append((r, c))
                    r, c = r + down, c + over
                if r < count and c < count and panels[r][c] == color:
                    for y, x in way:
                        filled[y][x] = color
    result = [list(row) for row in input_grid]
    for r, row in enumerate(result):
        for c in range(len(row)):
            if r % step != size and c % step != size:
                row[c] = filled[r // step][c // step]
    return result
