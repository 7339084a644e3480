def solve(input_grid):
    """
    Observations:
    - Columns of 3 divide the input into four pictures: 8, 5, 9 and 4.
    - The output lays them over each other.
    - Where several have a cell, 9 covers 4, 4 covers 8, and 8 covers 5.
    Procedure:
    1. Find the columns of 3 and cut the input there.
    2. For each place look at the third, the fourth, the first and the second picture.
    3. Write the first cell that is not 0.
    """
    width = len(input_grid[0])
    lines = [c for c in range(width) if all(row[c] == 3 for row in input_grid)]
    starts = [0] + [c + 1 for c in lines]
    ends = lines + [width]
    pictures = []
    for start, end in zip(starts, ends):
        pictures.append([row[start:end] for row in input_grid])
    first, second, third, fourth = pictures
    result = []
    for r in range(len(input_grid)):
        row = []
        for c in range(len(first[0])):
            row.append(third[r][c] or fourth[r][c] or first[r][c] or second[r][c])
        result.append(row)
    return result
