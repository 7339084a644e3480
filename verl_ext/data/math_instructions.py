"""The instructions around a mathematics question (ours, verl's and DAPO's), which are not part of the question."""

import re

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."

# Instructions at the end of questions in existing files: ours, and those of verl's examples/data_preprocess (MATH,
# GSM8K, and GSM8K with tools).
_ENDINGS = (
    INSTRUCTION,
    "Let's think step by step and output the final answer within \\boxed{}.",
    'Let\'s think step by step and output the final answer after "####".',
    "Let's think step by step and output the final answer after `####`.",
)
_QUOTES = str.maketrans({"\u2019": "'", "\u201c": '"', "\u201d": '"'})

# The text around every question in DAPO-Math-17k on the hub (BytedTsinghua-SIA).
_DAPO_PREFIX = re.compile(r"\A\s*Solve the following math problem step by step\..*?answer to the problem\.\s*", re.S)
_DAPO_SUFFIX = re.compile(r"\s*Remember to put your answer on its own line after \"Answer:\"\.?\s*\Z")


def strip_instructions(prompt: str) -> str:
    r"""The question without the instructions that we, verl's examples or DAPO's authors put around it.

    Example:
        >>> strip_instructions("What is 1+1? Let's think step by step and output the final answer within \\boxed{}.")
        'What is 1+1?'
    """
    text = _DAPO_SUFFIX.sub("", _DAPO_PREFIX.sub("", prompt)).strip()
    while ending := next((e for e in _ENDINGS if text.translate(_QUOTES).endswith(e)), ""):
        text = text[: -len(ending)].strip()
    return text
