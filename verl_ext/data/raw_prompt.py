"""`data.use_chat_template=false`: a base model gets only the text of the prompt.

verl renders a prompt in three places (the dataset's length filter, the agent loops of training and of validation),
always with the tokenizer's chat template, and replaces that template everywhere by
`actor_rollout_ref.model.custom_chat_template`. So raw prompts use a template that concatenates the contents of the
messages. Two things follow:

- The tokens are those of `tokenizer(text)`: there is a begin-of-text token if and only if this tokenizer puts one
  before plain text (Llama and Gemma do, Qwen does not). verl tokenizes a rendered template without special tokens, so
  the template must contain it. Nothing is appended, even if the tokenizer would append an end token.
- Checkpoints are saved with this template: so prompts are later rendered as in training.

`data.truncation` is also applied here, for raw and for chat prompts; see `verl_ext.serving.prompt_truncation`.
"""

import json
from typing import Any

from omegaconf import DictConfig, open_dict

from verl_ext.core.errors import ConfigError
from verl_ext.core.worker_modules import add_worker_module

TRUNCATIONS = ("error", "left", "right", "middle")

_SINGLE_TURN = "single_turn_agent"
_TRUNCATING_MODULE = "verl_ext.serving.prompt_truncation"
_TRUNCATING_AGENT = "truncating_single_turn_agent"

_CONTENTS = (
    "{% for message in messages %}"
    '{% if message["content"] is not string %}{{ raise_exception("raw prompts are text only") }}{% endif %}'
    '{{ message["content"] }}'
    "{% endfor %}"
)
_PROBE = "What is 1+1?\nAnswer:"


def apply_prompt_format(config: DictConfig) -> None:
    """Set what verl needs for `data.use_chat_template` and `data.truncation`. A second call changes nothing.

    Args:
        config: Configuration of the run; the tokenizer of `actor_rollout_ref.model` is loaded if prompts are raw.

    Raises:
        ConfigError: The settings contradict others, or the tokenizer cannot be loaded or cannot render raw prompts.
    """
    _apply_truncation(config)
    if config.data.get("use_chat_template", True):
        return
    template = raw_chat_template(load_tokenizer(config))
    given = config.actor_rollout_ref.model.get("custom_chat_template")
    if given is not None and given != template:
        raise ConfigError(
            "data.use_chat_template=false gives the model the text without any template, but "
            f"actor_rollout_ref.model.custom_chat_template is set ({given[:60]!r}…). Remove one of them."
        )
    with open_dict(config):
        config.actor_rollout_ref.model.custom_chat_template = template


def _apply_truncation(config: DictConfig) -> None:
    truncation = config.data.truncation
    if truncation not in TRUNCATIONS:
        raise ConfigError(f"data.truncation must be one of {', '.join(TRUNCATIONS)}, got {truncation!r}.")
    if truncation not in ("right", "middle"):
        return  # verl cuts on the left; `error` is applied by the data check before the run
    agent = config.actor_rollout_ref.rollout.agent
    if agent.default_agent_loop == _TRUNCATING_AGENT:
        return
    if agent.default_agent_loop != _SINGLE_TURN:
        raise ConfigError(
            f"data.truncation={truncation} needs actor_rollout_ref.rollout.agent.default_agent_loop={_SINGLE_TURN}, "
            f"got {agent.default_agent_loop}, and verl's other agent loops only cut on the left. Use "
            "data.truncation=left, or data.filter_overlong_prompts=true."
        )
    with open_dict(config):
        agent.default_agent_loop = _TRUNCATING_AGENT
    add_worker_module(config, _TRUNCATING_MODULE)  # the import registers the agent loop


def load_tokenizer(config: DictConfig) -> Any:
    """The tokenizer that verl will load for the run's prompts.

    Raises:
        ConfigError: There is no tokenizer.
    """
    from transformers import AutoTokenizer

    model = config.actor_rollout_ref.model
    path = model.get("tokenizer_path") or model.path
    try:
        return AutoTokenizer.from_pretrained(path, trust_remote_code=model.get("trust_remote_code", False))
    except (OSError, ValueError) as error:
        raise ConfigError(f"actor_rollout_ref.model.path={path}: no tokenizer could be loaded: {error}") from None


def raw_chat_template(tokenizer: Any) -> str:
    """A chat template that renders messages as plain text, for `tokenizer`.

    Args:
        tokenizer: A tokenizer of transformers, with or without a chat template.

    Returns:
        A Jinja template. The ids of the rendered text, without special tokens, are those of `tokenizer(text)` without
        what the tokenizer appends. `add_generation_prompt` has no effect.

    Raises:
        ConfigError: The tokenizer does not give the same ids both ways.
    """
    plain = tokenizer(_PROBE, add_special_tokens=False)["input_ids"]
    full = tokenizer(_PROBE)["input_ids"]
    starts = [i for i in range(len(full) - len(plain) + 1) if full[i : i + len(plain)] == plain]
    template = _CONTENTS
    if starts and starts[0] > 0:
        before = "".join(tokenizer.convert_ids_to_tokens(full[: starts[0]]))
        template = "{{ " + json.dumps(before) + " }}" + template
    expected = full[: starts[0] + len(plain)] if starts else full
    text = tokenizer.apply_chat_template([{"role": "user", "content": _PROBE}], chat_template=template, tokenize=False)
    rendered = tokenizer(text, add_special_tokens=False)["input_ids"]
    if rendered != expected:
        raise ConfigError(
            f"data.use_chat_template=false: the tokenizer {tokenizer.name_or_path!r} reads {_PROBE!r} as {expected}, "
            f"but the rendered prompt as {rendered}. Leave data.use_chat_template=true and write your own "
            "actor_rollout_ref.model.custom_chat_template."
        )
    return template
