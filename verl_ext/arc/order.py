"""The golden solutions from easy to hard.

The levels are set by hand, by what the solver must notice: the whole grid, its rows, its parts, the surroundings of a
cell, or objects. Within a level the solutions go from short to long code (Python tokens, see `form.measure`),
because a longer tail has more places to go wrong; `golden check` reports a solution that is out of this order.
"""

_LEVELS: dict[str, str] = {
    "The whole grid at once: copied, turned, cut or recoloured.": (
        "a416b8f3 67a3c6ac 68b16354 d10ecb37 5bd6f4ac 6d0aefbc 2dee498d 6150a2bd c8f0f002 6fa7a44f 4c4377d9 "
        "74dd1130 d511f180 62c24649 b1948b0a ed36ccf7 c59eb873 aabf363d f76d97a5 9172f3a0 8d5021e8 7b7f7511 "
        "0d3d703e 46442a0e"
    ),
    "Row by row, column by column or by count: a test or a number decides.": (
        "d631b094 44f52bb0 25d8a9c8 a85d4709 5582e5ca d23f8c26 a5f85a15 f8ff0b80 22eb0ac0 ea786f4a d406998b "
        "ba26e723 3cd86f4f 505fff84 3618c87e 496994bd 68b67ca3 3bd67248 bd4472b8 f8b3ba0a a699fb00 b91ae062 "
        "29c11459 746b3537 1e0a9b12 bbc9ae5d d037b0a7 963e52fc 9c56f360 99fa7670 9565186b 6f8cd79b 4be741c5 "
        "9af7a82c bda2d7a6 9caf5b84 e9afcf9a cdecee7f ff28f65a 6e02f1e3 2de01db2 794b24be a65b410d 27a77e38 "
        "8e5a5113 beb8660c 08ed6ac7 37ce87bb a61f2674 b0c4d837 8e1813be 0a938d79 855e0971"
    ),
    "Parts of the grid: compared, laid over each other, repeated or cut out.": (
        "59341089 ccd554ac 32e9702f 67e8384a 0c786b71 a59b95c0 f25ffba3 3af2c5a8 833dafe3 00576224 ac0a08a4 "
        "d4b1c2b1 48131b3c fafffa47 0520fde7 88a62173 e345f17b d19f7514 662c240a e3497940 f2829549 dae9d2b5 "
        "2072aba6 94f9d214 3428a4f5 e633a9e5 49d1d64f 31d5ba1a cf98881b 007bbfb7 82819916 017c7c7b 23b5c85d "
        "e98196ab 506d28a5 1cf80156 ca8de6ea 5614dbcf e133d23d 195ba7dc 28bf18c6 fc754716 5783df64 6a11f6da "
        "539a4f51 445eab21 7468f01a 6430c8c4 ce4f8723 2013d3e2 bc1d5164 85c4e7cd 34b99a2b 66e6c45b ae4f1146 "
        "99b1bc43 1b2d62fb a68b268e 7fe24cdd f5b8619d cce03e0d 75b8110e 973e499e 77fdfe62 a740d043 87ab05b8 "
        "b94a9452 f25fbde4 3f7978a0 cbded52d 72ca375d b8825c91 3d31c5b3 ed98d772 c3e719e8 d8c310e9 4cd1b7b2 "
        "be94b721 90c28cc7 47c1f68c a87f7484 9ecd008a 8e2edd66 0692e18c 363442ee 27f8ce4f 48f8583b 9f236235 "
        "d89b689b bbb1b8b6 53b68214 15696249 f9012d9b 1190e5a7 281123b4 2dc579da 6773b310 8f2ea7aa 3eda0437 "
        "a61ba2ce 272f95fa b190f7f5 54d9e175 dc0a314f 3de23699 29ec7d0e 7c008303 941d9a10 09629e4f 29623171 "
        "c444b776 681b3aeb 469497ad 06df4c85 6d0160f0"
    ),
    "Cells and their surroundings: neighbours, rings and lines drawn from a cell.": (
        "aa18de87 a79310a0 97999447 22168020 a3df8b1e e179c5f4 05269061 a8610ef7 bdad9b1f ce9e57f2 feca6190 "
        "834ec97d bb43febb ce22a75a d9f24cd1 d13f3404 178fcbfb db3e9e38 3ac3eb23 67a423a3 54d82841 d9fac9be "
        "dc433765 c1d99e64 ded97339 1f876c06 4258a5f9 dc1df850 b8cdaf2b 67385a82 d4a91cb9 ba97ae07 8403a5d5 "
        "3bdb4ada 3aa6fb7a 137eaa0f 8d510a79 42a50994 d90796e8 56ff96f3 e9614598 aedd82e4 a9f96cdd b60334d2 "
        "10fcaaa3 d364b489 2204b7a8 a48eeaf7 913fb3ed c074846d 23581191 253bf280 a2fd1cf0 6c434453 b6afb2da "
        "e5790162 f0afb749 5c0a986e dbc1a6ce 928ad970 e48d4e1a af902bf9 0ca9ddb6 31aa019c b27ca6d3 95990924 "
        "1f642eb9 fcc82909 93b581b8 ae3edfdc 40853293 760b3cac 508bd3b6 d43fd935 1f0c79e5 444801d8 1a07d186 "
        "4c5c2cf0 f35d900a d4f3cd78 7ddcd7ec d687bc17 25d487eb 0962bcdd 4093f84a 952a094c 3befdf3e 2bcee788 "
        "2c608aff b7249182 ec883f72 aba27056"
    ),
    "Objects and areas that the code finds by walking from cell to cell.": (
        "1caeab9d 1fad071e a3325580 3b4c2228 4347f46a 7f4411dc 90347967 5521c0d9 5168d44c b9b7f026 c0f76784 "
        "d0f5fe59 9edfc990 a1570a43 8ba14f53 c909285e e50d258f 88a10436 ea32f347 239be575 4852f2fa 91714a58 "
        "e872b94a 48d8fb45 d5d6de2d 83302e8f 60b61512 6e82a1ae e8593010 b548a754 00d62c1b 44d8ac46 36fdfd69 "
        "d2abd087 7447852a b230c067 84f2aca1 ddf7fa4f 7b6016b9 de1cd16c 694f12f3 e76a88a6 025d127b 56dc2b01 "
        "05f2a901 a5313dff 321b1fc6 150deff5 6455b5f5 5117e062 c8cbb738 868de0fa 543a7ed5 d6ad076f 39a8645d "
        "22233c11 63613498 fcb5c309 810b9b61 b2862040 98cf29f8"
    ),
}

LEVELS: tuple[tuple[str, ...], ...] = tuple(tuple(names.split()) for names in _LEVELS.values())

ORDER: tuple[str, ...] = tuple(name for level in LEVELS for name in level)
