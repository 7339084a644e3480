"""Python's garbage collector in processes that import half a million objects before their work begins."""

import gc


def exempt_start_up() -> None:
    """Exclude all objects that exist now, mostly imported modules, from later collections.

    A full collection looks at every object. With torch, verl and transformers loaded, each takes a tenth of a second,
    and building the rows of a step's prompts is enough to start some. Call it once, when a process is set up.
    """
    gc.collect()  # what is garbage now would otherwise stay for ever
    gc.freeze()
