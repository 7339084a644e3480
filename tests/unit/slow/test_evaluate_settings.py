"""What `recipe.fast_dapo.evaluate` accepts, how it reads data and scores, and when it needs no model at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from verl_ext.core.errors import SignalError
from verl_ext.data.schema import make_row, write_parquet
from verl_ext.evaluation import command as module
from verl_ext.evaluation.command import EvaluateSettings, evaluate, main, output_files, sample_seed
from verl_ext.evaluation.data import load_reward, read_data_sets, score
from verl_ext.evaluation.sampling import encode_prompts
from verl_ext.evaluation.statistics.samples import PromptKey

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
    """Answers that depend on the prompt's seed and its batch alone, as vLLM's do; dies after some calls."""

    calls: list[int] = []
    left = 10**9

    def __init__(self, model: str, **kwargs) -> None:
        pass

    def generate(self, prompts, seeds, *, n, **kwargs):
        if FakeSampler.left == 0:
            raise KeyboardInterrupt
        FakeSampler.left -= 1
        FakeSampler.calls.append(len(prompts))
        return [[([seed % 7 + len(prompts) + sample], False) for sample in range(n)] for seed in seeds]


class FakeTokenizer:
    chat_template = None
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
    assert (verdict.score, verdict.correct, verdict.pred) == (1.0, True, "1.0")
    assert score(reward, row | {"data_source": "arithmetic"}, r"so \boxed{1.0}").correct is False
    with pytest.raises(SignalError, match="no reward function for data_source 'unheard of'"):
        score(reward, row | {"data_source": "unheard of"}, "1")


def test_raw_prompts_are_the_contents_and_the_tokenizers_own_special_tokens():
    rows = [{"prompt": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}]
    assert encode_prompts(rows, FakeTokenizer(), room=9, raw_prompt=True) == [[1, ord("a"), ord("b")]]
    with pytest.raises(SignalError, match="--raw_prompt"):
        encode_prompts(rows, FakeTokenizer(), room=9)
    with pytest.raises(SignalError, match="val: 1 prompt"):
        encode_prompts(rows, FakeTokenizer(), room=2, raw_prompt=True, name="val")


def test_without_a_gpu_nothing_is_compiled(tmp_path: Path):
    """Beside the engine of `evaluate`, which needs no compiler then, and leaves no cache to others."""
    pytest.importorskip("torch")
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
