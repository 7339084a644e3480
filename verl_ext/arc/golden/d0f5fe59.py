def solve(input_grid):
    """
    Observations:
    - The input has several objects of colour 8; the cells of an object touch above, below, left or right.
    - The output is a square whose side is the number of objects.
    - Its main diagonal is 8, and all other cells are 0.
    Procedure:
    1. Count the objects: from each 8 that was not visited, visit all cells of its object.
    2. Make an empty square with this side.
    3. Write 8 on the diagonal.
    """
    places = set()
    for r, row in enumerate(input_grid):
        for c, cell in enumerate(row):
            if cell == 8:
                places.add((r, c))
    count = 0
    while places:
        count += 1
        queue = [places.pop()]
        for r, c in queue:
            for place in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                if place in places:
                    places.remove(place)
                    queue.append(place)
    result = [[0] * count for _ in range(count)]
    for step in range(count):
        result[step][step] = 8
    return result
