"""Raw prompts: the exact token ids that verl's dataset and agent loop see, with and without a chat template."""

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from verl_ext.core.errors import ConfigError
from verl_ext.data.raw_prompt import apply_prompt_format, raw_chat_template
from verl_ext.data.schema import make_row, write_parquet
from verl_ext.launch.data_checks import DataError, check_data
from verl_ext.serving.prompt_truncation import TruncatingSingleTurnAgentLoop, truncate

ROOT = Path(__file__).resolve().parents[3]
WORDS = ["<s>", "</s>", "<user>", "<assistant>", "one", "two", "three", "four", "five", "[UNK]"]
BOS, EOS, USER, ASSISTANT, ONE, TWO, THREE, FOUR, FIVE, _ = range(len(WORDS))
CHAT_TEMPLATE = (
    "{% for m in messages %}<user>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def build_tokenizer(template: str | None = "<s> $A") -> PreTrainedTokenizerFast:
    """One token per word; the post-processor surrounds plain text as `template` says."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if template is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<s>", BOS), ("</s>", EOS)]
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        unk_token="[UNK]",
        additional_special_tokens=["<user>", "<assistant>"],
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


@pytest.fixture(scope="module")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer().save_pretrained(path)
    return path


@functools.cache
def recipe_config() -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose("fast_dapo")


def compose_config(tokenizer_dir: Path, *overrides: str, train: Path | str = "train.parquet") -> DictConfig:
    files = [f"data.train_files={train}", f"data.val_files={train}", "data.train_batch_size=1", "data.gen_batch_size=1"]
    model = f"actor_rollout_ref.model.path={tokenizer_dir}"
    return OmegaConf.merge(recipe_config(), OmegaConf.from_dotlist([model, *files, *overrides]))


def verl_tokenizer(config: DictConfig) -> Any:
    """The tokenizer of a run as `HFModelConfig` makes it; its other fields need a whole model."""
    tokenizer = AutoTokenizer.from_pretrained(config.actor_rollout_ref.model.path)
    if config.actor_rollout_ref.model.custom_chat_template is not None:
        tokenizer.chat_template = config.actor_rollout_ref.model.custom_chat_template
    return tokenizer


def agent_loop_ids(config: DictConfig, prompt: str) -> list[int]:
    """Prompt ids by verl's own function, in the agent loop that the configuration names."""
    from verl.experimental.agent_loop import agent_loop
    from verl.utils.import_utils import import_external_libs, load_extern_object

    import_external_libs(OmegaConf.to_object(OmegaConf.create([config.actor_rollout_ref.model.external_lib]))[0])
    from verl.experimental.agent_loop import single_turn_agent_loop  # noqa: F401 - registers verl's own

    target = agent_loop._agent_loop_registry[config.actor_rollout_ref.rollout.agent.default_agent_loop]["_target_"]
    module, _, name = target.rpartition(".")
    loop_class = load_extern_object(f"pkg://{module}", name)

    async def build() -> list[int]:
        loop = loop_class(
            trainer_config=agent_loop.DictConfigWrap(config),
            server_manager=None,
            tokenizer=verl_tokenizer(config),
            processor=None,
            dataset_cls=None,
            data_config=agent_loop.DictConfigWrap(config.data),
        )
        return await loop.ct_build_initial_tokens([{"role": "user", "content": prompt}])

    return asyncio.run(build())


@pytest.fixture
def train(tmp_path: Path) -> Path:
    prompts = ["one two", "one two three four", "one two three four five"]
    path = tmp_path / "train.parquet"
    write_parquet([make_row("t", p, "2", index=i, split="train", ability="math") for i, p in enumerate(prompts)], path)
    return path


def test_the_chat_template_is_the_default(tokenizer_dir: Path):
    config = compose_config(tokenizer_dir)
    apply_prompt_format(config)
    assert config.actor_rollout_ref.model.custom_chat_template is None
    assert agent_loop_ids(config, "one two") == [USER, ONE, TWO, ASSISTANT]


def test_raw_prompts_are_the_text_with_the_tokenizers_own_first_token(tokenizer_dir: Path):
    config = compose_config(tokenizer_dir, "data.use_chat_template=false")
    apply_prompt_format(config)
    assert agent_loop_ids(config, "one two") == [BOS, ONE, TWO]
    assert agent_loop_ids(config, "one two") == build_tokenizer()("one two")["input_ids"]


def test_applying_twice_changes_nothing(tokenizer_dir: Path):
    config = compose_config(tokenizer_dir, "data.use_chat_template=false", "data.truncation=right")
    apply_prompt_format(config)
    once = OmegaConf.to_container(config)
    apply_prompt_format(config)
    assert OmegaConf.to_container(config) == once


@pytest.mark.parametrize(
    ("post_processor", "before"),
    [("<s> $A", [BOS]), (None, []), ("$A </s>", []), ("<s> $A </s>", [BOS]), ("</s> <s> $A", [EOS, BOS])],
)
def test_only_what_the_tokenizer_puts_before_a_text_is_there(post_processor: str | None, before: list[int]):
    tokenizer = build_tokenizer(post_processor)
    template = raw_chat_template(tokenizer)
    ids = tokenizer.apply_chat_template(
        [{"role": "system", "content": "one "}, {"role": "user", "content": "two"}],
        chat_template=template,
        add_generation_prompt=True,
        return_dict=False,
    )
    assert ids == [*before, ONE, TWO]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["one", "two\n", " three", "{{ four }}", "{% five %}", '"', "\\", "<"]), max_size=6))
def test_the_text_arrives_unchanged(parts: list[str]):
    tokenizer = build_tokenizer()
    text = " ".join(parts)
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], chat_template=raw_chat_template(tokenizer), tokenize=False
    )
    assert rendered == "<s>" + text


def test_images_are_refused():
    tokenizer = build_tokenizer()
    message = {"role": "user", "content": [{"type": "image"}]}
    with pytest.raises(Exception, match="text only"):
        tokenizer.apply_chat_template([message], chat_template=raw_chat_template(tokenizer))


def test_verls_dataset_filters_by_the_raw_length(tokenizer_dir: Path, train: Path, tmp_path: Path):
    from verl.utils.dataset.rl_dataset import RLHFDataset

    kept = {}
    for use_chat_template in ("true", "false"):
        config = compose_config(
            tokenizer_dir,
            f"data.use_chat_template={use_chat_template}",
            "data.max_prompt_length=5",
            "data.filter_overlong_prompts=true",
            "data.filter_overlong_prompts_workers=null",
            train=train,
        )
        apply_prompt_format(config)
        dataset = RLHFDataset(str(train), verl_tokenizer(config), config.data)
        kept[use_chat_template] = [row["extra_info"]["index"] for row in dataset]
    # Of 2, 4 and 5 words: two more tokens with the chat template, one more (BOS) without.
    assert kept == {"true": [0], "false": [0, 1]}


def test_the_check_before_the_run_counts_raw_lengths(tokenizer_dir: Path, train: Path):
    config = compose_config(tokenizer_dir, "data.use_chat_template=false", "data.max_prompt_length=6", train=train)
    apply_prompt_format(config)
    check_data(config)
    config.data.max_prompt_length = 5
    with pytest.raises(DataError, match="1 of 3 prompts, the longest 6 tokens"):
        check_data(config)


def test_a_tokenizer_without_a_chat_template_is_sent_to_raw_prompts(train: Path, tmp_path: Path):
    tokenizer = build_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path / "base")
    with pytest.raises(DataError, match=r"no chat template.*data\.use_chat_template=false"):
        check_data(compose_config(tmp_path / "base", train=train))
    config = compose_config(tmp_path / "base", "data.use_chat_template=false", train=train)
    apply_prompt_format(config)
    check_data(config)


@pytest.mark.parametrize(
    ("truncation", "raw", "chat"),
    [
        ("left", [TWO, THREE, FOUR, FIVE], [THREE, FOUR, FIVE, ASSISTANT]),
        ("right", [BOS, ONE, TWO, THREE], [USER, ONE, TWO, THREE]),
        ("middle", [BOS, ONE, FOUR, FIVE], [USER, ONE, FIVE, ASSISTANT]),
    ],
)
def test_long_prompts_are_cut_where_the_setting_says(
    tokenizer_dir: Path, train: Path, capsys: pytest.CaptureFixture, truncation: str, raw: list[int], chat: list[int]
):
    for use_chat_template, ids in (("false", raw), ("true", chat)):
        config = compose_config(
            tokenizer_dir,
            f"data.use_chat_template={use_chat_template}",
            f"data.truncation={truncation}",
            "data.max_prompt_length=4",
            train=train,
        )
        apply_prompt_format(config)
        check_data(config)
        assert f"They are cut ({truncation})" in capsys.readouterr().out
        assert agent_loop_ids(config, "one two three four five") == ids


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=12),
    st.integers(2, 12),
    st.sampled_from(["left", "right", "middle"]),
)
def test_truncation_is_verls_documented_one(ids: list[int], limit: int, truncation: str):
    from verl.utils.torch_functional import postprocess_data

    row = torch.tensor([ids])
    verls, mask = postprocess_data(row, torch.ones_like(row), limit, pad_token_id=-1, truncation=truncation)
    assert truncate(ids, limit, truncation) == verls[mask.bool()].tolist()


def test_an_agent_loop_of_ones_own_keeps_its_cut(tokenizer_dir: Path):
    config = compose_config(
        tokenizer_dir, "data.truncation=right", "actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent"
    )
    with pytest.raises(ConfigError, match=r"tool_agent.*data\.truncation=left"):
        apply_prompt_format(config)


def test_libraries_of_ones_own_are_still_imported(tokenizer_dir: Path):
    config = compose_config(tokenizer_dir, "data.truncation=middle", "actor_rollout_ref.model.external_lib=json")
    apply_prompt_format(config)
    assert config.actor_rollout_ref.model.external_lib == ["json", TruncatingSingleTurnAgentLoop.__module__]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["data.truncation=top"], r"one of error, left, right, middle, got 'top'"),
        (["data.use_chat_template=false", "actor_rollout_ref.model.custom_chat_template=x"], "Remove one of them"),
        (["data.use_chat_template=false", "actor_rollout_ref.model.path=/nowhere"], "no tokenizer could be loaded"),
    ],
)
def test_contradictions_are_said(tokenizer_dir: Path, overrides: list[str], words: str):
    with pytest.raises(ConfigError, match=words):
        apply_prompt_format(compose_config(tokenizer_dir, *overrides))
