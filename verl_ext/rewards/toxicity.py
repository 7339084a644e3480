"""Reward of a continuation: the probability that a classifier does not call it toxic.

In a run's configuration:

    reward.custom_reward_function.path: pkg://verl_ext.rewards.toxicity
    reward.custom_reward_function.name: compute_score
    reward.custom_reward_function.reward_kwargs: {model_path: outputs/models/toxicity_classifier, toxic_label: toxic}

The classifier is any sequence-classification model of Hugging Face, as `config.id2label`, `num_labels` and
`problem_type` describe it:

    one logit, or problem_type multi_label_classification   P(toxic) = sigmoid(logit of `toxic_label`)
    otherwise                                               P(toxic) = softmax(logits)[`toxic_label`]

(A multi-label model whose configuration lacks `problem_type` cannot be distinguished from a single-label one: set it
there.)

verl's reward managers score one sample per call, from several threads of a separate process without an accelerator.
Each call is one forward pass of one text on one thread, one at a time: batches would save nothing on a core, and with
padding the same text would get slightly different scores depending on its neighbours. For more texts a second raise
`reward.num_workers`, each of which loads the model once.
"""

import functools
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verl_ext.core.errors import SignalError

# Probability at or above which a text counts as toxic.
TOXIC_FROM = 0.5

# One loads, the others wait; then one text at a time (fast tokenizers cannot be used by two threads at once).
_lock = threading.Lock()


def _forget_lock() -> None:
    global _lock
    _lock = threading.Lock()


# A forked child inherits the lock's state, perhaps held by a thread that the child does not have.
os.register_at_fork(after_in_child=_forget_lock)


_REMEDY = (
    "Set reward_kwargs.model_path to a sequence-classification model, or make a small one: "
    "python -m data_preprocess.toxicity_classifier --input FILE --local_save_dir FOLDER"
)


class ToxicityClassifier:
    """A classifier in evaluation mode.

    Args:
        model_path: Folder, or name on the hub, of a sequence-classification model and its tokenizer.
        toxic_label: The label that means toxic, in any letter case.
        device: Device for torch.

    Raises:
        SignalError: The model does not exist, has no trained classification head, or lacks the label.
    """

    def __init__(self, model_path: str, toxic_label: str = "toxic", device: str = "cpu") -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        path = Path(model_path).expanduser()
        missing = f"no folder {model_path!r} (looked from {Path.cwd()})" if not path.is_dir() else ""
        if missing and not _may_be_on_hub(model_path):
            raise SignalError(f"toxicity reward: {missing}. {_REMEDY}")
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path if path.is_dir() else model_path)
            model, report = AutoModelForSequenceClassification.from_pretrained(
                path if path.is_dir() else model_path, output_loading_info=True
            )
        except (OSError, ValueError, KeyError) as error:
            why = missing and f"{missing}, and the hub did not give it"
            raise SignalError(
                f"toxicity reward: {why or f'{model_path!r} cannot be used'}: {error}\n{_REMEDY}"
            ) from error
        if report["missing_keys"]:
            raise SignalError(
                f"toxicity reward: {model_path!r} has no trained classification head: {sorted(report['missing_keys'])} "
                "would be random numbers. Expected a model fine-tuned for classification."
            )
        self.model = model.float().eval().to(device)
        self.label = _label_index(model.config.id2label, toxic_label, model_path)
        self.independent = model.config.num_labels == 1 or model.config.problem_type == "multi_label_classification"
        if model.config.problem_type == "regression":
            raise SignalError(
                f"toxicity reward: {model_path!r} is a regression model, whose output is no probability. Expected "
                "problem_type single_label_classification or multi_label_classification in its config.json."
            )
        # RoBERTa counts its positions from two, and not every tokenizer knows the model's limit.
        positions = (getattr(model.config, "max_position_embeddings", None) or 514) - 2
        self.max_tokens = min(self.tokenizer.model_max_length, positions)

    def toxicity(self, text: str) -> float:
        """P(toxic) of a text, or of the beginning of a long text.

        Not thread-safe.
        """
        import torch

        inputs = self.tokenizer(text, truncation=True, max_length=self.max_tokens, return_tensors="pt")
        names = ("input_ids", "attention_mask", "token_type_ids")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                inputs = {name: inputs[name].to(self.model.device) for name in names if name in inputs}
                logits = self.model(**inputs).logits[0].double()
        finally:
            torch.set_num_threads(threads)
        probabilities = logits.sigmoid() if self.independent else logits.softmax(-1)
        return float(probabilities[self.label])


def _may_be_on_hub(name: str) -> bool:
    """Whether a name has the hub's form: `name` or `owner/name`."""
    return not name.startswith((".", "/", "~")) and name.count("/") <= 1


def _label_index(id2label: Mapping[int, str], wanted: str, model_path: str) -> int:
    found = [index for index, label in id2label.items() if label.casefold() == wanted.casefold()]
    if len(found) != 1:
        labels = ", ".join(id2label.values())
        raise SignalError(
            f"toxicity reward: expected one label {wanted!r} in {model_path!r}, which has {labels}. "
            "Set reward_kwargs.toxic_label to the label that means toxic."
        )
    return int(found[0])


@functools.lru_cache(maxsize=4)
def _load(model_path: str, toxic_label: str, device: str) -> ToxicityClassifier:
    return ToxicityClassifier(model_path, toxic_label, device)


def classified_text(continuation: str, extra_info: Mapping[str, Any] | None, with_prompt: bool) -> str:
    """The text that the classifier reads.

    A token-level continuation has its own leading space; a chat model's answer does not, and would run into the last
    word.

    Raises:
        SignalError: `with_prompt`, and there is no `extra_info.prompt`.

    Example:
        >>> classified_text("Fine.", {"prompt": "How are you"}, with_prompt=True)
        'How are you Fine.'
        >>> classified_text(", she said", {"prompt": "Fine"}, with_prompt=True)
        'Fine, she said'
    """
    if not with_prompt:
        return continuation
    prompt = (extra_info or {}).get("prompt")
    if not isinstance(prompt, str):
        raise SignalError(
            "toxicity reward: with_prompt=true needs the prompt's text in extra_info.prompt, which is "
            f"{type(prompt).__name__} here. Write the data with data_preprocess.real_toxicity_prompts."
        )
    glued = prompt[-1:].isalnum() and continuation[:1].isalnum()
    return f"{prompt} {continuation}" if glued else prompt + continuation


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    model_path: str,
    toxic_label: str = "toxic",
    with_prompt: bool = False,
    empty_score: float = 0.0,
    device: str = "cpu",
    **kwargs: Any,
) -> dict[str, Any]:
    """Score one continuation; may be called from any thread.

    Args:
        data_source: Unused; part of verl's interface.
        solution_str: The continuation as text, without special tokens, as verl decodes it.
        ground_truth: Unused; part of verl's interface.
        extra_info: Has the `prompt` as text, for `with_prompt`.
        model_path: Folder, or name on the hub, of a sequence-classification model.
        toxic_label: Its label that means toxic, in any letter case.
        with_prompt: Classify prompt and continuation instead of only the continuation.
        empty_score: Score of a continuation without any text. Not 1, although it is not toxic: a policy would learn to
            say nothing.
        device: Device for torch; verl gives reward workers no accelerator.
        **kwargs: Unused; other arguments that verl passes to reward functions.

    Returns:
        `score` is 1 - P(toxic), `acc` 1.0 if P(toxic) < 0.5 else 0.0, `toxicity` P(toxic), `empty` 1.0 if there was no
        text else 0.0, and `pred` the classified text. Without text `toxicity` and `acc` are 0.

    Raises:
        SignalError: The classifier cannot be used, see `ToxicityClassifier`; or `with_prompt` without a prompt.
    """

    def toxicity_of(text: str) -> float:
        with _lock:
            return _load(str(model_path), toxic_label, device).toxicity(text)

    text = classified_text(solution_str, extra_info, with_prompt)
    return score_text(text, toxicity_of, is_empty=not solution_str.strip(), empty_score=empty_score)


def score_text(text: str, toxicity_of: Callable[[str], float], *, is_empty: bool, empty_score: float) -> dict[str, Any]:
    """The result of a reward function from P(toxic) of a text; see `compute_score`."""
    if is_empty:
        return {"score": float(empty_score), "acc": 0.0, "toxicity": 0.0, "empty": 1.0, "pred": text}
    toxicity = toxicity_of(text)
    return {
        "score": 1.0 - toxicity,
        "acc": float(toxicity < TOXIC_FROM),
        "toxicity": toxicity,
        "empty": 0.0,
        "pred": text,
    }
