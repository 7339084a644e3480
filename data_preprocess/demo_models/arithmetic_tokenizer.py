"""The byte-level tokenizer of the arithmetic base model: every byte is a token, so any text round-trips.

It is Qwen2's tokenizer without merges. (A vocabulary of only digits and signs would suffice for the task, but a Qwen2
tokenizer loses newlines and spaces when it is reloaded from such a vocabulary.)
"""

from tokenizers import pre_tokenizers
from transformers import Qwen2Tokenizer

END_OF_TEXT = "<|endoftext|>"
PAD = "<|pad|>"

# verl picks its ChatML boundary handling by the model type "qwen2" and always looks up these two, whatever the
# template.
_CHATML = ("<|im_start|>", "<|im_end|>")

# Contents only: the model's prompt is just the text of the user message.
_CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def build_tokenizer() -> Qwen2Tokenizer:
    """256 bytes and four special tokens; padding is not the end-of-text token, so that a loss can distinguish them."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), END_OF_TEXT, PAD, *_CHATML]
    tokenizer = Qwen2Tokenizer(
        vocab={token: number for number, token in enumerate(tokens)},
        merges=[],
        unk_token=None,  # pyright: ignore[reportArgumentType]  (every byte is known)
        eos_token=END_OF_TEXT,
        pad_token=PAD,
        additional_special_tokens=list(_CHATML),
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer
