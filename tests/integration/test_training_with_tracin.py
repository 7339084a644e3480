"""TracIn on real Ray, FSDP2 and vLLM, with LoRA: one trainer, many steps under different settings."""

import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab import DATA, Lab

from verl_ext.core.errors import WorkerDiedError
from verl_ext.serving.rollout_key import uid_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

# Whatever the policy and the random draw: eight prompts that it solves sometimes, so that gradients have both signs.
MIXED = {"curriculum__enable": True, "data__gen_batch_size": 24}
# Eight prompts of any kind; sometimes none of them has an advantage.
PLAIN = {"curriculum__enable": False, "data__gen_batch_size": 8}
NUM_ROWS = 8 * 16


@pytest.fixture
def tracin_lab(labs: Any) -> Lab:
    return labs.get(
        "tracin",
        "tracin.enable=true",
        # The demo's own validation prompts, because nothing is evaluated here.
        f"tracin.validation_files={DATA}/val.parquet",
        "tracin.validation.strategy=contrast",
        "tracin.validation.pool_size=48",
        "tracin.validation.k=16",
        "tracin.check_identity_every=1",
        "actor_rollout_ref.model.lora_rank=4",
        # So small that the policy hardly changes over these steps: prompts stay mixed, scores have both signs.
        "actor_rollout_ref.actor.optim.lr=1e-4",
        "algorithm.adv_estimator=grpo",
    )


def _records(lab: Lab) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (lab.run_dir / "influence.jsonl").read_text().splitlines()]
    return [record for record in records if record["step"] == records[-1]["step"]]


def _names(trainer: Any) -> tuple[set[str], set[str], set[str]]:
    from verl_ext.serving import data_plane

    rollouts = trainer.selectors[-1].validation_rollouts
    kept = set(rollouts._keys) if rollouts else set()
    return set(data_plane.tags("train")), set(data_plane.tags("influence")), kept


def test_every_sample_is_scored_and_those_with_a_positive_score_are_trained_on(tracin_lab: Lab):
    with tracin_lab.settings(**MIXED):
        metrics = tracin_lab.step()
        records = _records(tracin_lab)
    # The curriculum's whole batch.
    assert metrics["curriculum/trained"] == 8
    assert {record["key"] for record in records} == set(metrics["batch_keys"])
    assert len(records) == NUM_ROWS
    assert all(record["weight"] == (record["score"] > 0) for record in records)
    assert metrics["tracin/num_selected"] == sum(record["score"] > 0 for record in records) > 0
    assert metrics["tracin/mean_ip"] == pytest.approx(np.mean([record["score"] for record in records]))
    # The whole texts of the extreme scores, and of the largest disagreements of score and reward.
    texts = [record for record in records if "response" in record]
    by_score = sorted(records, key=itemgetter("score"))
    failed = [record for record in by_score if record["reward"] == 0]
    passed = [record for record in by_score if record["reward"] == 1]
    told = {record["key"]: record["score"] for record in by_score[:4] + by_score[-4:] + failed[-4:] + passed[:4]}
    assert sorted(record["score"] for record in texts) == sorted(told.values())
    assert all("+" in record["prompt"] and record["prompt"].endswith("=") for record in texts)
    assert all(record["response"].strip().isdigit() for record in texts if record["reward"] == 1)
    assert any(record["score"] < 0 for record in records)
    # Scores use verl's own loss: they add up to the product of the two gradients.
    assert metrics["tracin/identity_error"] < 1e-4
    assert metrics["tracin/validation_gradient_norm"] > 0
    assert metrics["actor/grad_norm"] > 0


def test_the_curriculum_learns_which_prompts_help(tracin_lab: Lab):
    def evidence(trainer: Any) -> tuple[dict[str, int], list[float], list[float]]:
        collector = trainer.collector
        known = collector.predictor.posterior.influence.arrays()
        places = {group.prompt.uid: collector.predictor._position[group.prompt.index] for group in collector.groups}
        return places, known["influence_sum"].tolist(), known["influence_count"].tolist()

    choose = {"curriculum__predictor": "posterior", "curriculum__posterior__use_influence": True}
    with tracin_lab.settings(**MIXED, **choose):
        metrics = tracin_lab.step()
        places, sums, counts = tracin_lab.call(evidence)
        records = _records(tracin_lab)
    by_prompt: dict[str, float] = {}
    for record in records:
        uid = uid_of(record["key"])
        by_prompt[uid] = by_prompt.get(uid, 0.0) + record["score"]
    size = np.sqrt(np.mean([score**2 for score in by_prompt.values() if score]))
    assert len(places) == 8
    assert {places[uid]: score / size for uid, score in by_prompt.items() if score} == pytest.approx(
        {place: total for place, total in enumerate(sums) if total}
    )
    assert sum(counts) == sum(score != 0 for score in by_prompt.values()) > 0
    assert 0 <= metrics["predictor/harmful_share"] <= 1


def test_validation_rollouts_serve_until_the_next_refresh(tracin_lab: Lab):
    with tracin_lab.settings(**PLAIN, tracin__validation__refresh_every=2):
        steps = [tracin_lab.step() for _ in range(4)]
        _, stored, kept = tracin_lab.call(_names)
        records = _records(tracin_lab)
    made = [metrics["tracin/validation/rollouts_generated"] for metrics in steps]
    # The trainer's step number may be even or odd by now; at the first of these steps there are no rollouts yet.
    assert made in ([48, 0, 48, 0], [48, 48, 0, 48])
    chosen = [metrics["tracin/validation/chosen_at_step"] for metrics in steps]
    assert len(set(chosen)) == len([number for number in made if number])
    assert stored == kept != set()
    # A sample without an advantage has no gradient.
    assert all(record["score"] == 0 for record in records if record["advantage"] == 0)


def test_of_equal_rewards_the_least_likely_answers_are_chosen(tracin_lab: Lab):
    def watch(trainer: Any) -> None:
        chooser = trainer.selectors[-1].validation_rollouts.chooser
        choose = chooser.choose

        def choose_and_tell(step: int, *pool: Any) -> Any:
            chooser.pool = pool
            return choose(step, *pool)

        chooser.choose = choose_and_tell

    def seen(trainer: Any) -> tuple[list[float], list[float], list[int], list[float]]:
        from verl_ext.serving import data_plane

        rollouts = trainer.selectors[-1].validation_rollouts
        rewards, _, surprises = rollouts.chooser.pool
        rows = data_plane.read(rollouts._keys, "influence", ("rollout_log_probs", "response_mask"))
        columns = (rows[name].unbind() for name in ("rollout_log_probs", "response_mask"))
        kept = [
            1 - log_probs[mask == 1].exp().mean().item()
            for log_probs, mask in zip(*columns, strict=True)
            if mask.any()  # not padding
        ]
        return rewards, surprises, rollouts.chooser.choice.indices.tolist(), kept

    quality = {"tracin__validation__strategy": "quality", "tracin__validation__refresh_every": 1}
    with tracin_lab.settings(**PLAIN, **quality, tracin__validation__ties="least_likely"):
        tracin_lab.step()
        tracin_lab.call(watch)
        tracin_lab.step()
        rewards, surprises, chosen, kept = tracin_lab.call(seen)
    right = [place for place, reward in enumerate(rewards) if reward > 0]
    assert chosen == sorted(right, key=lambda place: -surprises[place])[:16] != []
    assert sorted(kept) == pytest.approx(sorted(surprises[place] for place in chosen), abs=1e-6)
    assert len({round(surprise, 6) for surprise in surprises}) > 24


def test_what_a_selection_masks_is_whole_again_after_the_update(tracin_lab: Lab):
    def masks(trainer: Any) -> tuple[list[int], list[int]]:
        from verl_ext.serving import data_plane
        from verl_ext.trainer.parts import Observer

        seen: list[list[int]] = []

        class Look(Observer):
            # Without type hints: Ray sends along the names that functions use, but not those in a class body.
            def observe(self, batch):
                rows = data_plane.read(batch.keys, "train", ["response_mask"])
                seen.append([int(row.sum()) for row in rows["response_mask"].unbind()])

        look, update = Look(trainer), trainer.actor_rollout_wg.update_actor
        trainer.observers.append(look)
        trainer.actor_rollout_wg.update_actor = lambda batch: (look.observe(batch), update(batch))[1]
        try:
            _step(trainer)
        finally:
            trainer.actor_rollout_wg.update_actor = update
            trainer.observers.remove(look)
        return seen[0], seen[1]

    with tracin_lab.settings(**MIXED):
        during, after = tracin_lab.call(masks)
    assert 0 in during
    assert 0 not in after
    assert all(d in (0, a) for d, a in zip(during, after, strict=True))


def test_a_step_with_nothing_positive_updates_nothing(tracin_lab: Lab):
    def without_positive_scores(trainer: Any) -> dict[str, Any]:
        selector = trainer.selectors[-1]
        take = selector._take_scores
        selector._take_scores = lambda batch: -1.0 - abs(take(batch))
        return _step(trainer)

    with tracin_lab.settings(**MIXED):
        metrics = tracin_lab.call(without_positive_scores)
    assert metrics["tracin/update_skipped"] == 1
    assert metrics["tracin/num_selected"] == 0
    assert "actor/grad_norm" not in metrics


def test_rows_that_leave_the_batch_leave_the_data_plane(tracin_lab: Lab):
    def with_forty_positive_scores(trainer: Any) -> dict[str, Any]:
        selector = trainer.selectors[-1]
        take = selector._take_scores
        signs = np.where(np.arange(NUM_ROWS) < 40, 1.0, -1.0)
        selector._take_scores = lambda batch: signs * (1.0 + abs(take(batch)))
        return _step(trainer)

    changes = {"tracin__selection__divisibility": "drop", "actor_rollout_ref__actor__ppo_mini_batch_size": 1}
    with tracin_lab.settings(**MIXED, **changes):
        metrics = tracin_lab.call(with_forty_positive_scores)
        stored, _, _ = tracin_lab.call(_names)
    # Whole mini-batches of 16 rows: 8 of the 40 are dropped.
    assert len(metrics["batch_keys"]) == metrics["tracin/num_selected"] == 32
    # Prompts of the next step may be in flight; nothing of this step remains.
    assert not stored & {record["key"] for record in _records(tracin_lab)}


@pytest.mark.parametrize("mini_batch", [8, 2])
def test_one_pass_scores_and_trains_at_once(tracin_lab: Lab, mini_batch: int):
    """In one update of the step's eight prompts, or in four."""
    changes = {"tracin__one_pass": True, "actor_rollout_ref__actor__ppo_mini_batch_size": mini_batch}
    with tracin_lab.settings(**MIXED, **changes):
        metrics = tracin_lab.step()
        records = _records(tracin_lab)
    assert "timing_s/tracin_scoring" not in metrics
    assert len(records) == NUM_ROWS
    assert metrics["tracin/num_selected"] == sum(record["score"] > 0 for record in records) > 0
    assert metrics["tracin/identity_error"] < 1e-4
    assert metrics["actor/grad_norm"] > 0


def test_in_batch_needs_no_rollouts_of_its_own(tracin_lab: Lab):
    with tracin_lab.settings(**MIXED, tracin__validation__strategy="in_batch"):
        metrics = tracin_lab.step()
        scores = [record["score"] for record in _records(tracin_lab)]
    assert "tracin/validation/rollouts_generated" not in metrics
    assert len(scores) == NUM_ROWS
    assert metrics["tracin/num_selected"] == sum(score > 0 for score in scores) > 0


def test_the_chosen_rollouts_travel_with_a_checkpoint(tracin_lab: Lab):
    def round_trip(trainer: Any) -> tuple[dict, dict, int]:
        for part in trainer.parts.values():
            part.before_checkpoint()
        selector = trainer.selectors[-1]
        before = selector.state_dict()["validation_rollouts"]
        trainer.load_signal_state(json.loads(json.dumps(trainer.signal_state())))
        return before, selector.state_dict()["validation_rollouts"], len(selector.records.lines.read())

    with tracin_lab.settings(**PLAIN):
        tracin_lab.step()
        before, after, num_records = tracin_lab.call(round_trip)
        metrics = tracin_lab.step()
    assert before == after
    assert before["keys"]
    assert num_records > 0
    # Nothing was lost, so nothing is generated again, unless the refresh is due anyway.
    is_due = metrics["tracin/validation/chosen_at_step"] > before["chooser"]["step"]
    assert metrics["tracin/validation/rollouts_generated"] == (48 if is_due else 0)


def test_validation_prompts_that_are_trained_on_are_refused(tracin_lab: Lab):
    from recipe.tracin.method.disjoint import ValidationOverlapError

    def overlap(trainer: Any, file: str) -> None:
        before = trainer.config.tracin.validation_files
        trainer.config.tracin.validation_files = file
        try:
            trainer.selectors[-1].new_validation_rollouts()
        finally:
            trainer.config.tracin.validation_files = before

    with pytest.raises(ValidationOverlapError, match="1024 of 1024"):
        tracin_lab.call(overlap, str(Path(DATA) / "train.parquet"))


def test_a_killed_reward_worker_ends_the_run_with_its_name(tracin_lab: Lab):
    """Runs last: it does not come back. The run ends at once, without retrying rollouts until prompts are given up."""
    tracin_lab.kill_worker("RewardLoopWorker")
    with pytest.raises(WorkerDiedError, match=r"the worker RewardLoopWorker \(process \d+ on .*\) died"):
        tracin_lab.step()
    assert tracin_lab.call(lambda trainer: trainer.collector.controller.conservation()["given_up"]) == 0


def _step(trainer: Any) -> dict[str, Any]:
    """A step without the lab's bookkeeping."""
    from verl.utils.debug import marked_timer

    from verl_ext.serving import data_plane

    metrics: dict[str, Any] = {}
    trainer.timing_raw = {}
    with marked_timer("step", trainer.timing_raw):
        trainer.on_step_begin()
        batch = trainer.step(metrics, trainer.timing_raw)
        trainer.on_step_end()
    metrics["batch_keys"] = list(batch.keys)
    data_plane.clear(batch.keys, batch.partition_id)
    trainer.global_steps += 1
    return metrics
