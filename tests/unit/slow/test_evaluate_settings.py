"""What `recipe.fast_dapo.evaluate` accepts, how it reads data and scores, and when it needs no model at all."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from verl_ext.core.errors import SignalError
from verl_ext.data.schema import make_row, write_parquet
from verl_ext.evaluation import command as module
from verl_ext.evaluation.command import evaluate, main, output_files, sample_seed
from verl_ext.evaluation.data import check_reward, load_reward, read_data_sets, score
from verl_ext.evaluation.sampling import encode_prompts, with_system
from verl_ext.evaluation.settings import EvaluateSettings
from verl_ext.evaluation.statistics.report import summarize_data_set
from verl_ext.evaluation.statistics.samples import PromptKey, ScoredResponse

ROOT = Path(__file__).resolve().parents[2]


def write(path: Path, rows: int = 5, source: str = "arithmetic") -> str:
    write_parquet(
        [
            make_row(
                source, f"{path}{n}+1=", str(n + 1), index=n, split="val", ability="math", extra_info={"kind": "a"}
            )
            for n in range(rows)
        ],
        path,
    )
    return str(path)


class FakeSampler:
    """Its answers depend only on the prompt's seed and its batch, as vLLM's do; it dies after some calls."""

    calls: list[int] = []
    left = 10**9
    asked: dict = {}

    def __init__(self, model: str, **kwargs) -> None:
        FakeSampler.asked = dict(kwargs)

    def generate(self, prompts, seeds, *, n, **kwargs):
        FakeSampler.asked |= kwargs
        if FakeSampler.left == 0:
            raise KeyboardInterrupt
        FakeSampler.left -= 1
        FakeSampler.calls.append(len(prompts))
        return [[([seed % 7 + len(prompts) + sample], False) for sample in range(n)] for seed in seeds]


class FakeTokenizer:
    chat_template: str | None = None
    bos = [1]

    def __call__(self, text: str) -> dict:
        return {"input_ids": [*self.bos, *map(ord, text)]}

    def decode(self, ids, skip_special_tokens: bool) -> str:
        return str(ids[0] % 4)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeSampler]:
    import transformers

    monkeypatch.setattr(module, "Sampler", FakeSampler)
    monkeypatch.setattr(module, "load_tokenizer", lambda model: FakeTokenizer())
    monkeypatch.setattr(module, "prepare_vllm", lambda: True)

    class Config:
        def get_text_config(self):
            return self

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda model: Config())
    FakeSampler.calls, FakeSampler.left = [], 10**9
    return FakeSampler


def settings(*data: str, **kwargs) -> EvaluateSettings:
    return EvaluateSettings("model", data, **({"n": 4, "k": (1, 2), "raw_prompt": True, "chunk_size": 2} | kwargs))


def test_a_killed_evaluation_goes_on_and_equals_an_uninterrupted_one(tmp_path: Path, fake):
    chosen = settings(write(tmp_path / "a.parquet"), write(tmp_path / "b.parquet", rows=3))
    whole = evaluate(chosen, tmp_path / "whole.jsonl")
    assert fake.calls == [2, 2, 1, 2, 1]
    fake.calls, fake.left = [], 2
    with pytest.raises(KeyboardInterrupt):
        evaluate(chosen, tmp_path / "killed.jsonl")
    killed = tmp_path / "killed.jsonl"
    killed.write_bytes(killed.read_bytes()[:-20])  # the second chunk's last prompt
    fake.calls, fake.left = [], 10**9
    assert evaluate(chosen, killed) == whole
    assert fake.calls == [2, 1, 2, 1]
    assert killed.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_finished_evaluation_is_reported_anew_without_a_model(tmp_path: Path, fake, monkeypatch):
    a, b = write(tmp_path / "a.parquet"), write(tmp_path / "b.parquet")
    evaluate(settings(a, limit=4), tmp_path / "samples.jsonl")
    fake.calls.clear()
    evaluate(settings(a, b, limit=4, k=(4,), by="kind"), tmp_path / "samples.jsonl")
    assert fake.calls == [2, 2]  # only b's
    monkeypatch.setattr(module, "load_tokenizer", None)
    assert len(evaluate(settings(b, a, limit=3), tmp_path / "samples.jsonl").data_sets[1].prompts) == 3


def test_samples_of_other_settings_are_not_mixed(tmp_path: Path, fake):
    a = write(tmp_path / "a.parquet")
    evaluate(settings(a), tmp_path / "samples.jsonl")
    with pytest.raises(SignalError, match="seed was 0, is 1"):
        evaluate(settings(a, seed=1), tmp_path / "samples.jsonl")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", 0.7),
        ("top_k", 20),
        ("chat_template_kwargs", {"enable_thinking": False}),
        ("system_prompt", "Be brief."),
    ],
)
def test_what_changes_samples_is_compared(name: str, value: object):
    before, after = (EvaluateSettings("m", ("a",), **change).sample_settings() for change in ({}, {name: value}))
    assert before.pop(name) != after.pop(name) == value
    assert before == after


def test_another_success_threshold_reports_the_same_samples(tmp_path: Path, fake, monkeypatch):
    reward = tmp_path / "partial.py"
    reward.write_text("def half(data_source, solution_str, ground_truth, extra_info=None): return 0.5\n")
    a = write(tmp_path / "a.parquet")
    given = {"reward": f"{reward}:half"}
    first = evaluate(settings(a, **given), tmp_path / "samples.jsonl").data_sets[0]
    monkeypatch.setattr(module, "load_tokenizer", None)
    second = evaluate(settings(a, success_threshold=0.5, **given), tmp_path / "samples.jsonl").data_sets[0]
    assert [result.estimates["pass@1"].value for result in (first, second)] == [0.0, 1.0]
    assert [result.estimates["avg@4"].value for result in (first, second)] == [0.5, 0.5]


def test_a_model_that_was_written_anew_is_another_model(tmp_path: Path):
    (tmp_path / "weights").write_text("one")
    before = EvaluateSettings(str(tmp_path), ("a",)).sample_settings()
    assert EvaluateSettings(str(tmp_path), ("a",)).sample_settings() == before
    (tmp_path / "weights").write_text("other")
    assert EvaluateSettings(str(tmp_path), ("a",)).sample_settings() != before


def test_the_command_writes_json_picture_and_samples(tmp_path: Path, fake, capsys: pytest.CaptureFixture[str]):
    data = [write(tmp_path / "a.parquet"), write(tmp_path / "b.parquet")]
    main(["--model", "m", "--data", *data, "--n", "4", "--raw_prompt", "--output", str(tmp_path / "out")])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"result.json", "pass_rates.png", "samples.jsonl"}
    assert "macro average" in capsys.readouterr().out
    main(["--model", "m", "--data", data[0], "--n", "4", "--raw_prompt", "--plot", str(tmp_path / "x.png")])
    assert (tmp_path / "x.png").exists()
    with pytest.raises(SystemExit, match=r"--plot must end in \.png"):
        main(["--model", "m", "--data", data[0], "--plot", "x.pdf"])


def test_files_are_beside_a_json_file_or_in_a_folder():
    assert [str(path) for path in output_files(Path("a/r.json"))] == ["a/r.json", "a/r.png", "a/r.samples.jsonl"]
    assert output_files(Path("a/run"))[2] == Path("a/run/samples.jsonl")


def test_a_prompts_seed_depends_on_the_prompt_alone():
    keys = [PromptKey(data, row) for data in "ab" for row in range(50)]
    seeds = [sample_seed(seed, key) for seed in (0, 1) for key in keys]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**48 for seed in seeds)
    assert sample_seed(0, PromptKey("a", 3)) == seeds[3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": ()}, "one or more parquet files"),
        ({"n": 0}, "at least 1"),
        ({"chunk_size": 0}, "at least 1"),
        ({"n": 1001}, "at most 1000"),
        ({"k": (17,)}, "Raise --n or lower --k"),
        ({"temperature": -1.0}, "at least 0"),
        ({"temperature": 0.0}, "needs --n 1"),
        ({"reward": "file.py"}, "file.py:function"),
        ({"top_p": 0.0}, "--top_p must be above 0"),
        ({"top_p": 1.1}, "at most 1"),
        ({"top_k": 0}, "-1 for all tokens"),
        ({"gpu_memory_utilization": 80}, "at most 1, got 80"),
        ({"data_parallel_size": 0}, "at least 1"),
        ({"chat_template_kwargs": {"tokenize": False}}, "tokenize is set by the evaluation itself"),
        ({"raw_prompt": True, "system_prompt": ""}, "--raw_prompt leaves out the chat template"),
        ({"raw_prompt": True, "chat_template_kwargs": {"a": 1}}, "--raw_prompt leaves out the chat template"),
    ],
)
def test_impossible_settings_are_refused(change: dict, message: str):
    with pytest.raises(SignalError, match=message):
        EvaluateSettings(**({"model": "m", "data": ("a",)} | change))


def test_data_sets_have_names_that_tell_them_apart(tmp_path: Path):
    files = [write(tmp_path / folder / "val.parquet", rows) for folder, rows in (("x", 2), ("y", 3))]
    assert [data_set.name for data_set in read_data_sets(files)] == ["x/val", "y/val"]
    assert [data_set.name for data_set in read_data_sets(files[:1])] == ["val"]
    with pytest.raises(SignalError, match="names a file twice"):
        read_data_sets([files[0], files[0]])
    with pytest.raises(SignalError, match="no such field"):
        read_data_sets(files, by="level")


def test_math_data_sources_are_scored_as_math(tmp_path: Path):
    row = read_data_sets([write(tmp_path / "a.parquet", source="math500")])[0].rows[0]
    reward = load_reward(None)
    verdict = score(reward, row, r"so \boxed{1.0}")
    assert (verdict.score, verdict.acc, verdict.pred) == (1.0, 1.0, "1.0")
    assert score(reward, row | {"data_source": "arithmetic"}, r"so \boxed{1.0}").acc == 0.0
    with pytest.raises(SignalError, match="has a reward function for data_source 'unheard of'"):
        score(reward, row | {"data_source": "unheard of"}, "1")


def test_acc_decides_where_the_reward_function_reports_it():
    row = {"data_source": "a", "reward_model": {"ground_truth": "1"}, "extra_info": {"index": 0}}
    verdicts = [score(lambda result=result, **_: result, row, "1") for result in (0.5, {"score": -1.0, "acc": True})]
    assert [(verdict.score, verdict.acc, verdict.reward) for verdict in verdicts] == [
        (0.5, None, 0.5),
        (-1.0, 1.0, 1.0),
    ]


# A reward that is right for data source a; what follows decides for b.
GOOD_FOR_A = "def f(data_source, extra_info, **_):\n    if data_source == 'a': return 1.0\n    "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD_FOR_A + "return extra_info['level']", r"data_source 'b', index 0: KeyError: 'level' \(.*, line 3\)"),
        (GOOD_FOR_A + "return {'acc': 1}", r"returned {'acc': 1} for data_source 'b'.*Expected a number"),
        (GOOD_FOR_A + "return None", "returned None"),
        ("async " + GOOD_FOR_A + "return 1 / 0", "ZeroDivisionError"),
        ("def f(answer): return 1", "unexpected keyword argument"),
        ("def f(**_) return 1", r"cannot be loaded.*SyntaxError"),
        ("def g(**_): return 1", "cannot be loaded"),
    ],
)
def test_a_reward_that_cannot_work_is_found_before_the_engine_starts(tmp_path: Path, fake, text: str, message: str):
    reward = tmp_path / "reward.py"
    reward.write_text(text)
    data = [write(tmp_path / f"{name}.parquet", source=name) for name in "ab"]
    with pytest.raises(SignalError, match=message):
        evaluate(settings(*data, reward=f"{reward}:f"))
    assert fake.calls == []


def test_every_data_source_is_asked_once(tmp_path: Path):
    asked = []
    data_sets = read_data_sets([write(tmp_path / f"{name}.parquet", source=name) for name in "ab"])
    check_reward(lambda data_source, **_: asked.append(data_source) or 0.0, data_sets)
    assert sorted(asked) == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_parallel_size": 2}, "needs a GPU per engine"),
        ({"gpu_memory_utilization": 0.5}, "this machine has no GPU"),
    ],
)
def test_what_needs_a_gpu_is_refused_without_one(tmp_path: Path, fake, change: dict, message: str):
    with pytest.raises(SignalError, match=message):
        evaluate(settings(write(tmp_path / "a.parquet"), **change))


def test_the_engine_gets_what_was_asked_for(tmp_path: Path, fake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "prepare_vllm", lambda: False)  # a machine with GPUs
    asked = {"top_p": 0.7, "top_k": 20, "gpu_memory_utilization": 0.5, "tensor_parallel_size": 2, "temperature": 0.6}
    evaluate(settings(write(tmp_path / "a.parquet"), **asked))
    assert asked.items() <= fake.asked.items()


def test_engines_share_the_prompts(tmp_path: Path, fake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "prepare_vllm", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    a = write(tmp_path / "a.parquet")
    result = evaluate(settings(a, data_parallel_size=2, chunk_size=4), tmp_path / "samples.jsonl")
    assert result.data_sets[0].summary.num_samples == 20
    assert fake.calls == []  # in their own processes
    with pytest.raises(SignalError, match="needs 4 GPUs, and 2 can be used here"):
        evaluate(settings(a, data_parallel_size=2, tensor_parallel_size=2))


def chat_tokenizer() -> FakeTokenizer:
    """Renders with the real template engine; an id is a character's code."""
    from transformers.utils.chat_template_utils import render_jinja_template

    class ChatTokenizer(FakeTokenizer):
        chat_template = (
            "{% if think is defined and not think %}-{% endif %}"
            "{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }};{% endfor %}"
            "{% if shout is defined %}{{ raise_exception('no shouting') }}{% endif %}"
        )

        def apply_chat_template(self, messages, tokenize, return_dict, **kwargs) -> list[int]:
            (text,), _ = render_jinja_template([messages], chat_template=self.chat_template, **kwargs)
            return list(map(ord, text))

    return ChatTokenizer()


def test_chat_template_arguments_and_system_prompt_reach_the_template():
    rows = [{"prompt": [{"role": "user", "content": "1+1="}]}]

    def render(**kwargs) -> str:
        return "".join(map(chr, encode_prompts(rows, chat_tokenizer(), 99, **kwargs)[0]))

    assert render() == "u:1+1=;"
    assert render(chat_template_kwargs={"think": False}, system_prompt="Be brief.") == "-s:Be brief.;u:1+1=;"
    with pytest.raises(SignalError, match="does not read thinc"):
        render(chat_template_kwargs={"thinc": False})
    with pytest.raises(SignalError, match=r"cannot render the prompts.*no shouting"):
        render(chat_template_kwargs={"shout": True})


def test_the_system_prompt_takes_the_place_of_the_files():
    user = {"role": "user", "content": "1+1="}
    own = {"role": "system", "content": "own"}
    assert with_system([own, user], None) == [own, user]
    assert with_system([own, user], "") == with_system([user], "") == [{"role": "system", "content": ""}, user]


@pytest.mark.parametrize("text", ["{", "[1]", "1"])
def test_chat_template_arguments_are_a_json_object(text: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["--model", "m", "--data", "a.parquet", "--chat_template_kwargs", text])
    assert "expected a JSON object" in capsys.readouterr().err


def test_verls_validation_logs_the_same_numbers():
    """avg@n and pass@k under verl's names, by verl's own function."""
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    random = np.random.default_rng(0)
    samples_P = [
        [ScoredResponse("", acc, False, str(acc), False, 1, acc) for acc in random.integers(0, 2, 4).astype(float)]
        for _ in range(20)
    ]
    flat = [(str(number), sample) for number, samples in enumerate(samples_P) for sample in samples]
    found = process_validation_metrics(
        ["val"] * len(flat),
        [uid for uid, _ in flat],
        {"acc": [sample.acc for _, sample in flat], "pred": [sample.pred for _, sample in flat]},
    )["val"]["acc"]
    estimates = summarize_data_set("val", "val.parquet", range(20), samples_P, (1, 4)).estimates
    assert found["mean@4"] == pytest.approx(estimates["avg@4"].value)
    # Resampled with replacement, which occasionally misses a single right sample.
    assert 0 < estimates["pass@4"].value - found["best@4/mean"] < 0.1


def test_raw_prompts_are_the_contents_and_the_tokenizers_own_special_tokens():
    rows = [{"prompt": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}]
    assert encode_prompts(rows, FakeTokenizer(), room=9, raw_prompt=True) == [[1, ord("a"), ord("b")]]
    with pytest.raises(SignalError, match="--raw_prompt"):
        encode_prompts(rows, FakeTokenizer(), room=9)
    with pytest.raises(SignalError, match="val: 1 prompt"):
        encode_prompts(rows, FakeTokenizer(), room=2, raw_prompt=True, name="val")


def test_without_a_gpu_nothing_is_compiled(tmp_path: Path):
    """Also outside the engine of `evaluate`: `torch.compile` then needs no compiler and leaves no cache to others."""
    program = (
        "from verl_ext.evaluation.sampling import prepare_vllm\n"
        "assert prepare_vllm()\n"
        "import torch\n"
        "print(torch.compile(lambda x: (x >= 2).sum(-1))(torch.ones(2, 3)).tolist())\n"
    )
    cache = tmp_path / "compiled"
    environment = {name: value for name, value in os.environ.items() if name != "TORCHDYNAMO_DISABLE"}
    environment |= {"CXX": "/nonexistent", "TORCHINDUCTOR_CACHE_DIR": str(cache), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout == "[0, 0]\n"
    assert [path for path in cache.rglob("*") if path.is_file()] == []
