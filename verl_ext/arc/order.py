"""The golden solutions from easy to hard.

The levels are set by hand, by what the solver has to notice: the whole grid, its rows, its parts, the surroundings of a
cell, or objects. Within a level the solutions go from short to long code (Python tokens, see `form.measure`),
because a longer tail has more places to go wrong; `golden check` reports a solution that is out of this order.
"""

_LEVELS: dict[str, str] = {
    "The whole grid at once: copied, turned, cut or recoloured.": (
        "a416b8f3 67a3c6ac 68b16354 d10ecb37 5bd6f4ac 6d0aefbc 2dee498d 6150a2bd c8f0f002 6fa7a44f 4c4377d9 "
        "74dd1130 d511f180 62c24649 b1948b0a ed36ccf7 c59eb873 aabf363d f76d97a5 7b7f7511 9172f3a0 8d5021e8 "
        "0d3d703e 46442a0e"
    ),
    "Row by row, column by column or by count: a test or a number decides.": (
        "d631b094 44f52bb0 25d8a9c8 a85d4709 5582e5ca d23f8c26 a5f85a15 f8ff0b80 22eb0ac0 ea786f4a d406998b "
        "496994bd 3bd67248 bd4472b8 a699fb00 b91ae062 29c11459 746b3537 1e0a9b12 bbc9ae5d d037b0a7 963e52fc "
        "99fa7670 6f8cd79b 9af7a82c bda2d7a6 e9afcf9a ff28f65a 6e02f1e3 a65b410d 8e5a5113 a61f2674"
    ),
    "Parts of the grid: compared, laid over each other, repeated or cut out.": (
        "fafffa47 0520fde7 88a62173 662c240a e3497940 f2829549 dae9d2b5 3428a4f5 cf98881b 007bbfb7 23b5c85d "
        "1cf80156 5614dbcf 28bf18c6 445eab21 7468f01a 2013d3e2 bc1d5164 ae4f1146 a68b268e 77fdfe62 a740d043 "
        "b94a9452 f25fbde4 72ca375d c3e719e8 be94b721 90c28cc7 f9012d9b a61ba2ce"
    ),
    "Cells and their surroundings: neighbours, rings and lines drawn from a cell.": (
        "a79310a0 a3df8b1e bdad9b1f 834ec97d bb43febb ce22a75a d13f3404 db3e9e38 67a423a3 d9fac9be ded97339 "
        "1f876c06 4258a5f9 dc1df850 67385a82 d90796e8 e9614598 aedd82e4 a9f96cdd a48eeaf7 6c434453 b6afb2da "
        "928ad970 b27ca6d3 25d487eb"
    ),
    "Objects and areas that the code finds by walking from cell to cell.": (
        "c0f76784 d0f5fe59 e50d258f ea32f347 239be575 48d8fb45 d5d6de2d 60b61512 00d62c1b b230c067 a5313dff 543a7ed5"
    ),
}

LEVELS: tuple[tuple[str, ...], ...] = tuple(tuple(names.split()) for names in _LEVELS.values())

ORDER: tuple[str, ...] = tuple(name for level in LEVELS for name in level)
