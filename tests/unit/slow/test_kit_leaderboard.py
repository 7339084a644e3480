"""The GPU kit's leaderboard on the CPU: a tiny random Llama, interrupted after every step, trains to the same state."""

import math
import sys
import time
from pathlib import Path

import pytest
import torch

sys.path += [str(Path(__file__).resolve().parents[2] / folder) for folder in ("gpu/kit", "benchmarks")]

import run as kit_run
from adapter_policy import AdapterPolicy
from job_leaderboard import TOY, Leaderboard, Training, make
from relived import OtherRequestError, log_of_plain, plain_log, relive
from sessions import Setting, call
from toy_assets import make_toy_assets
from word_problems import Problems, prompt_states, read_problems, with_states


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Problems]:
    """The tiny model's folder, and its problems."""
    model, data = make_toy_assets(tmp_path_factory.mktemp("toy"))
    problems = read_problems(model, data, max_response=TOY.max_response)
    return model, with_states(problems, prompt_states(problems, model, "cpu"))


def policy_of(assets: tuple[Path, Problems], seed: int = 0, **changes: float) -> AdapterPolicy:
    settings = {"temperature": 0.7, "learning_rate": 1e-2} | changes
    return AdapterPolicy(*assets, device="cpu", estimator="rloo", seed=seed, **settings)


def setting_of(folder: Path) -> Setting:
    return Setting(folder, kit_run.ROOT, "cpu", True, math.inf)


def test_padding_is_no_token_of_a_prompt_although_the_tokenizer_pads_with_the_end(assets: tuple[Path, Problems]):
    problems = assets[1]
    task, tokenizer = problems.task, problems.tokenizer
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == task.end != task.pad
    texts = [tokenizer.decode(ids[ids != task.pad]) for ids in task.prompts]
    assert texts[1] == "word1 word2 <end>"
    assert len(texts) == len(problems.truths) == 12


def test_log_probs_of_training_are_those_of_sampling_at_the_temperature(assets: tuple[Path, Problems]):
    policy = policy_of(assets)
    rollouts = policy.sample([0, 1, 1, 2, 5, 11])
    assert {rollout.reward for rollout in rollouts} <= {0.0, 1.0}
    assert all(policy.task.pad not in rollout.response for rollout in rollouts)
    assert policy.drift(rollouts).max() < 1e-5
    assert policy_of(assets, temperature=1.4).drift(rollouts).max() > 1e-2


def test_an_update_towards_a_rollout_makes_it_likelier_and_moves_only_the_adapter(assets: tuple[Path, Problems]):
    policy = policy_of(assets)
    before = {name: weight.clone() for name, weight in policy.model.named_parameters()}
    rollouts = policy.sample([0, 0, 1, 1])
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0]).numpy()
    responses, old, mask = policy._padded_responses(rollouts)
    policy.update(rollouts, ["a", "a", "b", "b"], advantages=advantages)
    new = policy._log_probs(torch.tensor([0, 0, 1, 1]), responses)
    moved = {name for name, weight in policy.model.named_parameters() if not torch.equal(weight, before[name])}
    assert moved
    assert moved <= set(policy.trained)
    assert all("lora_" in name for name in policy.trained)
    assert (((new - old) * mask).sum(1).detach().numpy() * advantages).sum() > 0


def test_the_reward_is_verl_signals_for_math(assets: tuple[Path, Problems]):
    policy = policy_of(assets)
    rollouts = policy.sample([2] * 64)
    for rollout in rollouts:
        boxes = [token for token in rollout.response if 3 <= token < 7]  # the answers' tokens
        assert rollout.reward == float(bool(boxes) and boxes[-1] - 3 == 2)
    assert 0 < sum(rollout.reward for rollout in rollouts) < 64


@pytest.mark.parametrize("method", TOY.shapes)
def test_a_restored_run_is_the_same_run(assets: tuple[Path, Problems], method: str):
    def run(saves: bool) -> Training:
        training = Training(f"{method}/0", TOY, *assets, "cpu")
        for _ in range(3):
            training.step()
            if saves:
                training = Training(f"{method}/0", TOY, *assets, "cpu", training.state_dict())
        return training

    plain, restored = run(False), run(True)
    assert plain_equal(plain_log(plain.policy.log), plain_log(restored.policy.log))
    assert plain.history == restored.history
    for name, weight in plain.policy.trained.items():
        assert torch.equal(weight, restored.policy.trained[name])
    assert plain.method.counts == restored.method.counts


def plain_equal(one: list[dict], other: list[dict]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a[name], b[name]) for a, b in pairs for name in a)


def test_a_log_is_the_same_after_saving(assets: tuple[Path, Problems]):
    policy = policy_of(assets)
    policy.sample([0, 1])
    policy.sample([2])
    found = log_of_plain(plain_log(policy.log))
    assert [[(r.prompt, r.response, r.reward) for r in call] for call in found] == [
        [(r.prompt, r.response, r.reward) for r in call] for call in policy.log
    ]
    assert torch.equal(found[0][1].log_probs, policy.log[0][1].log_probs)


def test_a_method_that_asks_for_other_prompts_is_not_relived(assets: tuple[Path, Problems]):
    training = Training("uniform_rloo/0", TOY, *assets, "cpu")
    training.step()
    other = Training("uniform_rloo/1", TOY, *assets, "cpu").method
    with pytest.raises(OtherRequestError, match="other prompts"):
        relive(other, training.policy.log, 1)
    twice = [*training.policy.log, training.policy.log[0]]
    with pytest.raises(OtherRequestError, match="more calls"):
        relive(Training("uniform_rloo/0", TOY, *assets, "cpu").method, twice, 1)


def without_seconds(job: Leaderboard) -> dict:
    return {name: record["history"] for name, record in job.records.items()}


def test_calls_of_one_step_each_give_what_one_call_gives(tmp_path: Path):
    whole = make(setting_of(tmp_path / "whole"))
    assert call(whole, setting_of(tmp_path / "whole"))
    calls = 0
    while True:
        job = make(setting_of(tmp_path / "steps"))
        calls += 1
        if call(job, setting_of(tmp_path / "steps"), most_steps=1):
            break
    assert calls > len(whole.records) == 3
    assert without_seconds(job) == without_seconds(whole)
    for looks in without_seconds(whole).values():
        assert looks[0]["rollouts"] == 0
        assert looks[-1]["rollouts"] >= TOY.budget
    sizes = [path.stat().st_size for path in (tmp_path / "steps").iterdir() if path.is_file()]
    assert len(sizes) <= 8
    assert max(sizes) < 16 * 2**20


def test_a_call_without_time_keeps_the_run_in_progress(tmp_path: Path):
    call(make(setting_of(tmp_path)), setting_of(tmp_path), most_steps=1)
    late = Setting(tmp_path, kit_run.ROOT, "cpu", True, time.monotonic() - 1)
    assert not call(make(late), late)
    job = make(setting_of(tmp_path))
    call(job, setting_of(tmp_path), most_steps=1)
    assert job.training is not None
    assert job.training.policy.version == 2
