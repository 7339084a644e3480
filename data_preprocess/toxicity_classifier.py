"""Train the toxicity reward's classifier for the CPU demo: a small BERT on the prompts' own toxicity scores.

    python -m data_preprocess.toxicity_classifier --input rtp.jsonl.gz \\
        --local_save_dir outputs/models/toxicity_classifier

Under half a minute on one CPU core; a second call with the same settings and data returns immediately. `--input` is
required: nothing may be downloaded for a demo, and there is no substitute for real scores. See
`data_preprocess.real_toxicity_prompts` for its format.

The targets are the scores themselves (cross-entropy with soft labels: Perspective's 0.3 is "three readers in ten would
call it toxic"). It is evaluated on the held-out prompts of `real_toxicity_prompts` with the same seed, which it is not
trained on. It knows the rude words of four thousand half sentences but little about their combined meaning: enough for
a demo of the loop, not for a study. For a study use a published classifier; the reward accepts any
(`verl_ext.rewards.toxicity`).

Saved in Hugging Face format, in float32, one label "toxic" (a single logit, sigmoid), with its own BPE tokenizer.
"""

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from scipy.stats import rankdata
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from data_preprocess.demo_models.model_training import Optimization, fit, train_cached
from data_preprocess.ending import errors_in_one_line
from data_preprocess.real_toxicity_prompts import ScoredPrompt, digest, read_prompts, split

LABEL = "toxic"
TOXIC_ABOVE = 0.5


@dataclass(frozen=True)
class ClassifierSettings:
    """All settings that determine the weights, except the data.

    Attributes:
        seed: Seed of the initial weights, of the batches and of the split.
        steps: Optimizer steps.
        batch_size: Texts per step.
        masked: Share of the words that are hidden in training; without it the rare ones are memorised.
        dropout: Dropout of the model.
        learning_rate: Peak of the schedule in `model_training.fit`.
        beta2: Second-moment decay of AdamW.
        weight_decay: Weight decay of AdamW.
        vocab_size: Number of tokens, including special ones.
        max_tokens: Longest text.
        hidden_size: Width of the residual stream.
        num_layers: Transformer layers.
        num_heads: Attention heads.
    """

    seed: int = 0
    steps: int = 1200
    batch_size: int = 32
    masked: float = 0.3
    dropout: float = 0.2
    learning_rate: float = 2e-3
    beta2: float = 0.98
    weight_decay: float = 0.1
    vocab_size: int = 4096
    max_tokens: int = 128
    hidden_size: int = 64
    num_layers: int = 1
    num_heads: int = 2

    def __post_init__(self) -> None:
        if min(self.steps, self.batch_size, self.num_layers) < 1:
            raise ValueError(f"steps, batch_size and num_layers must be at least 1, got {self}")
        if not (0 <= self.masked < 1 and 0 <= self.dropout < 1):
            raise ValueError(f"masked and dropout must be shares below 1, got {self.masked} and {self.dropout}")
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size must be a multiple of num_heads, got {self.hidden_size} / {self.num_heads}")


@dataclass(frozen=True)
class Quality:
    """Agreement with the scores of held-out prompts.

    Attributes:
        prompts: Number of prompts.
        auroc: Probability that a prompt above 0.5 is ranked above one that is not; nan if either kind is missing.
        correlation: Pearson's, of predicted and given toxicity.
    """

    prompts: int
    auroc: float
    correlation: float


def auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve; ties count half (Mann and Whitney's U). nan without positives or negatives.

    Args:
        scores: (N,) float.
        positive: (N,) bool.
    """
    num_positive, num_negative = int(positive.sum()), int((~positive).sum())
    if not num_positive or not num_negative:
        return float("nan")
    u = rankdata(scores)[positive].sum() - num_positive * (num_positive + 1) / 2
    return float(u / (num_positive * num_negative))


def train_tokenizer(texts: Sequence[str], settings: ClassifierSettings) -> PreTrainedTokenizerBase:
    """BPE of the lower-case words between spaces and punctuation; a part of a word is the same token everywhere.

    (WordPiece, BERT's own, numbers its tokens differently every time it is trained.)
    """
    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    bpe = Tokenizer(models.BPE(unk_token="[UNK]"))
    bpe.normalizer = normalizers.BertNormalizer(lowercase=True)
    bpe.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size, special_tokens=list(special.values()), show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    ends = [(token, bpe.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    bpe.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, model_max_length=settings.max_tokens, **special)


def build_model(settings: ClassifierSettings, tokenizer: PreTrainedTokenizerBase) -> BertForSequenceClassification:
    """The untrained model with a single logit."""
    torch.manual_seed(settings.seed)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        intermediate_size=2 * settings.hidden_size,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=settings.num_heads,
        max_position_embeddings=settings.max_tokens,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
        pad_token_id=cast(int, tokenizer.pad_token_id),
        id2label={0: LABEL},
        label2id={LABEL: 0},
        problem_type="multi_label_classification",  # sigmoid: the probability of one label
        dtype="float32",
    )
    return BertForSequenceClassification(config)


def shuffled_batches(size: int, batch_size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Row numbers, epoch after epoch, endlessly; an epoch's last incomplete batch is dropped."""
    batch_size = min(size, batch_size)
    while True:
        order = rng.permutation(size)
        for start in range(0, size - batch_size + 1, batch_size):
            yield order[start : start + batch_size]


def train(
    prompts: Sequence[ScoredPrompt], settings: ClassifierSettings, *, report_every: int = 200
) -> tuple[BertForSequenceClassification, PreTrainedTokenizerBase]:
    """Train from scratch; returns the model in eval mode and its tokenizer.

    Args:
        prompts: Prompts with their scores.
        settings: Equal settings and prompts give equal weights with the same number of torch threads.
        report_every: Steps between two lines of progress; 0: no progress.
    """
    texts = [prompt.text for prompt in prompts]
    targets_N = torch.tensor([prompt.toxicity for prompt in prompts])
    tokenizer = train_tokenizer(texts, settings)
    model = build_model(settings, tokenizer).train()
    batches = shuffled_batches(len(texts), settings.batch_size, np.random.default_rng(settings.seed))

    def loss_of_next_batch() -> torch.Tensor:
        rows = next(batches)
        inputs = tokenizer([texts[row] for row in rows], truncation=True, padding=True, return_tensors="pt")
        ids_BT, mask_BT = inputs["input_ids"], inputs["attention_mask"]
        hidden_BT = (torch.rand(ids_BT.shape) < settings.masked) & (ids_BT >= len(tokenizer.all_special_ids))
        ids_BT = ids_BT.masked_fill(hidden_BT, tokenizer.mask_token_id)
        logits_B = model(input_ids=ids_BT, attention_mask=mask_BT).logits[:, 0]
        return torch.nn.functional.binary_cross_entropy_with_logits(logits_B, targets_N[rows])

    optimization = Optimization(settings.steps, settings.learning_rate, settings.beta2, settings.weight_decay)
    fit(model, loss_of_next_batch, optimization, name="toxicity classifier", report_every=report_every)
    return model.eval(), tokenizer


def predict(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> np.ndarray:
    """P(toxic) of each text, (N,) float."""
    parts = []
    with torch.inference_mode():
        for start in range(0, len(texts), 64):
            batch = list(texts[start : start + 64])
            inputs = tokenizer(batch, truncation=True, padding=True, return_tensors="pt")
            parts.append(model(**inputs).logits[:, 0].sigmoid().numpy())
    return np.concatenate(parts)


def measure(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[ScoredPrompt]
) -> Quality:
    """Agreement with the scores of `prompts`."""
    predicted = predict(model, tokenizer, [prompt.text for prompt in prompts])
    given = np.array([prompt.toxicity for prompt in prompts])
    correlation = float(np.corrcoef(predicted, given)[0, 1])
    return Quality(len(prompts), auroc(predicted, given > TOXIC_ABOVE), correlation)


def main(argv: Sequence[str] | None = None) -> None:
    """Train, or reuse the trained model, and print its folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, help="file of RealToxicityPrompts, or its name on the hub")
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder for the model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=ClassifierSettings.steps)
    parser.add_argument("--force", action="store_true", help="train even if the folder has this model")
    args = parser.parse_args(argv)

    def train_and_report() -> tuple[BertForSequenceClassification, PreTrainedTokenizerBase]:
        learned, held_out = split(prompts, settings.seed)
        model, tokenizer = train(learned, settings)
        quality = measure(model, tokenizer, held_out)
        print(
            f"{quality.prompts} held-out prompts: AUROC {quality.auroc:.3f} for toxicity > {TOXIC_ABOVE}, "
            f"correlation {quality.correlation:.3f}"
        )
        return model, tokenizer

    with errors_in_one_line(args.local_save_dir, ValueError):
        settings = ClassifierSettings(seed=args.seed, steps=args.steps)
        prompts, _ = read_prompts(args.input)
        record = dataclasses.asdict(settings) | {"prompts": digest(prompts)}
        # Matrices this small gain nothing from a second thread, and the weights depend on the number of threads.
        torch.set_num_threads(1)
        print(train_cached(record, args.local_save_dir, train_and_report, force=args.force))


if __name__ == "__main__":
    main()
