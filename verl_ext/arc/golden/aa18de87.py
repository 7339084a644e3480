def solve(input_grid):
    """
    Observations:
    - The input has a zigzag line of one colour.
    - In the output the empty cells between two cells of the line in the same row are 2.
    Procedure:
    1. Find the first and the last coloured cell of each row.
    2. Write 2 at the empty cells between them.
    """
    result = []
    for row in input_grid:
        cells = list(row)
        coloured = [c for c, cell in enumerate(row) if cell]
        if coloured:
            for c in range(min(coloured), max(coloured)):
                if cells[c] == 0:
                    cells[c] = 2
        result.append(cells)
    return result
