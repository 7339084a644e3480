def solve(input_grid):
    """
    Observations:
    - The input has one large shape of 5.
    - It can be divided into 2 by 2 squares and straight bars of three cells.
    - In the output the squares are 8 and the bars 2.
    Procedure:
    1. Take the first cell that is not yet covered, in reading order.
    2. Try to cover it with a square, a bar to the right or a bar downwards, of which it is the first cell.
    3. Go on with the next cell; if the rest cannot be covered, take back the last piece and try the next kind.
    """
    cells = []
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 5:
                cells.append((r, c))
    square = ((0, 0), (0, 1), (1, 0), (1, 1))
    across = ((0, 0), (0, 1), (0, 2))
    downwards = ((0, 0), (1, 0), (2, 0))
    pieces = ((8, square), (2, across), (2, downwards))

    def cover(left):
        """Colours of all cells that are left, or None if no pieces cover them."""
        if not left:
            return {}
        r, c = min(left)
        for colour, offsets in pieces:
            piece = {(r + down, c + right) for down, right in offsets}
            if piece <= left:
                rest = cover(left - piece)
                if rest is not None:
                    return {**rest, **dict.fromkeys(piece, colour)}
        return None

    result = [list(row) for row in input_grid]
    for (r, c), colour in cover(frozenset(cells)).items():
        result[r][c] = colour
    return result
