"""DataController against a naive model that keeps plain lists, in every order of calls that hypothesis finds."""

import json
import math
from collections import Counter

import pytest
from curriculum_play import add, make_samples, snapshot, uids
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.data_controller import DataController
from recipe.fast_dapo.curriculum.records import Prompt, Sample


class Model(RuleBasedStateMachine):
    """The curriculum with lists: [uid, index, samples]; nothing is fast, and each rule is written out."""

    @initialize(
        n=st.integers(1, 4),
        n_continue=st.integers(0, 5),
        keeps_all=st.booleans(),
        batch=st.integers(1, 3),
        max_buffer=st.none() | st.integers(0, 2),
        max_staleness=st.none() | st.integers(0, 3),
        stale=st.sampled_from(["wait", "drop"]),
        max_attempts=st.integers(1, 3),
        grades=st.just((0.0, 1.0)) | st.just((0.0, 0.25, 0.5, 1.0)),
        band=st.sampled_from([(0.0, 1.0), (0.0, 1.0), (0.2, 0.7), (0.5, 0.9)]),
    )
    def start(self, n, n_continue, keeps_all, batch, max_buffer, max_staleness, stale, max_attempts, grades, band):
        train_on = "all" if keeps_all or n == 1 else "qualified"
        limits = {"max_buffer_prompts": max_buffer, "max_staleness": max_staleness, "max_attempts": max_attempts}
        self.grades, is_graded = grades, len(grades) > 2
        has_outcome = n > 1 and (is_graded or any(band[0] < passes / n < band[1] for passes in range(1, n)))
        self.low, self.high = band if has_outcome else (0.0, 1.0)
        limits |= {"success_threshold": None if is_graded else 0.5, "band": (self.low, self.high)}
        self.settings = CurriculumSettings(
            n=n,
            n_continue=n_continue,
            schedule="merged",
            train_on=train_on,
            train_batch_size=batch,
            gen_batch_size=4,
            stale=stale,
            **limits,
        )
        self.controller = DataController(self.settings)
        self.first, self.second, self.ready, self.flying = [], [], [], []
        self.num_added = self.rounds = self.failures = 0
        self.dispatched_at = self.version = 2  # so that results differ in age from the start
        self.controller.evict(self.version)
        fates = ("all_wrong", "all_right", "evicted_overflow", "given_up", "trained")
        self.fates = {name: [] for name in fates}
        self.failed_in_a_row = Counter()
        self.trained_keys = []
        self.rollouts = Counter()  # by fate

    @rule(indices=st.lists(st.integers(0, 3), max_size=6))
    def add_prompts(self, indices):
        new = [[f"u{self.num_added + i}", index, []] for i, index in enumerate(indices)]
        self.num_added += len(new)
        self.controller.add_new_prompts_first_generation_phase([Prompt(uid, index) for uid, index, _ in new])
        self.first += new

    @precondition(lambda self: self.num_added > 0)
    @rule(data=st.data())
    def refuse_live_uid(self, data):
        live = [entry[0] for entry in self.first + self.second + self.ready + self.flying]
        before = snapshot(self.controller)
        again = data.draw(st.sampled_from([*live, "twice"]))
        with pytest.raises(ValueError, match="no live prompt has"):
            add(self.controller, "brand new", "twice", again)
        assert snapshot(self.controller) == before

    @precondition(lambda self: not self.flying)
    @rule()
    def generate(self):
        n, m = self.settings.n, self.settings.n_continue
        needed = max(0, self.settings.train_batch_size - len(self.ready) - len(self.second))
        num_new = needed if self.settings.train_on == "all" else len(self.first)
        new, self.first = self.first[:num_new], self.first[num_new:]
        inputs = self.controller.get_generation_inputs()
        got = [(entry.prompt.uid, entry.prompt.index, entry.num_samples, entry.first_session) for entry in inputs]
        assert got == [(u, i, m, n) for u, i, _ in self.second] + [(u, i, n, 0) for u, i, _ in new]
        self.flying, self.second = self.second + new, []
        self.dispatched_at = self.version

    def is_mixed(self, screening):
        successes = [sample.success for sample in screening]
        return min(successes) < max(successes) and self.low < sum(successes) / len(successes) < self.high

    def draw_results(self, data):
        """Random results, mostly mixed; some prompts fail, wholly or in part; versions are up to two behind."""
        results = {}
        for uid, _, old in self.flying:
            asked = self.settings.n_continue if old else self.settings.n
            outcome = data.draw(st.sampled_from(["mixed"] * 8 + ["any"] * 4 + ["wrong", "right", "short", "missing"]))
            rights = [float(outcome == "right" or (i == 0 and outcome != "wrong")) for i in range(asked)]
            if outcome == "any":
                rights = data.draw(st.lists(st.sampled_from(self.grades), min_size=asked, max_size=asked))
            if outcome == "short":
                rights.pop()
            if outcome != "missing":
                version = max(0, self.version - data.draw(st.integers(0, 2)))
                results[uid] = make_samples(uid, len(old), rights, version)
        return results

    @rule(data=st.data(), num=st.integers(1, 6), rounds=st.integers(2, 4), train=st.booleans())
    def play_rounds(self, data, num, rounds, train):
        """The trainer's order of calls; the separate rules below cover every other order."""
        for _ in range(rounds):
            self.add_prompts([0] * num)
            if not self.flying:
                self.generate()
            self.answer(data)
            self.agrees()
            self.update_weights(int(train))
        if train:
            self.train()

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def answer(self, data):
        n, m = self.settings.n, self.settings.n_continue
        results, again_first, again_second, failed, released = self.draw_results(data), [], [], [], []
        gone = sum(map(len, self.fates.values()))
        for entry in self.flying:
            uid, index, old = entry
            new = results.get(uid, [])
            self.rollouts["generated"] += len(new)
            if len(new) < (m if old else n):
                failed.append(uid)
                self.failed_in_a_row[uid] += 1
                released += [sample.key for sample in new]
                self.rollouts["failed"] += len(new)
                if self.failed_in_a_row[uid] == self.settings.max_attempts:
                    self.fates["given_up"].append(entry)
                    self.rollouts["failed"] += len(old)
                else:
                    (again_second if old else again_first).append(entry)
                continue
            self.failed_in_a_row[uid] = 0
            is_mixed = self.is_mixed(new)
            mean = sum(sample.success for sample in new) / max(1, len(new))
            if old or (is_mixed and not m) or (not is_mixed and self.settings.train_on == "all"):
                self.ready.append([uid, index, old + new])
            elif is_mixed:
                self.second.append([uid, index, new])
            else:
                self.fates["all_wrong" if mean <= (self.low + self.high) / 2 else "all_right"].append([uid, index, new])
                self.rollouts["uninformative"] += len(new)
        self.failures += len(failed)
        self.rounds += bool(self.flying)
        self.first, self.second, self.flying = again_first + self.first, again_second + self.second, []
        released += self.evict()
        out = [entry for fate in self.fates.values() for entry in fate]
        result = self.controller.update_prompts(dict(reversed(results.items())), self.version)
        assert len(result.released_uids) == len(out) - gone
        assert set(result.released_uids) <= {entry[0] for entry in out}
        ours = [s.key for entry in out if entry[0] in result.released_uids for s in entry[2]]
        assert sorted(result.released_keys) == sorted(ours + released)
        assert sorted(result.failed_uids) == sorted(failed)

    def evict(self):
        """Expired prompts come back to the front of the first phase without their samples; returns those samples."""
        limit, bound = self.settings.max_staleness, self.settings.max_buffer_prompts
        expired = []
        for queue in (self.second, self.ready):
            too_old = [e for e in queue if limit is not None and self.version - min(s.version for s in e[2]) > limit]
            expired += sorted(too_old, key=lambda entry: min(s.version for s in entry[2]))  # stable: then by arrival
            queue[:] = [entry for entry in queue if entry not in too_old]
        self.first = [[uid, index, []] for uid, index, _ in expired] + self.first
        samples = [s.key for entry in expired for s in entry[2]]
        self.rollouts["expired"] += len(samples)
        while bound is not None and len(self.ready) > self.settings.train_batch_size + bound:
            stalest = min(self.ready, key=lambda entry: min(s.version for s in entry[2]))  # the first among equals
            self.ready.remove(stalest)
            self.fates["evicted_overflow"].append(stalest)
            self.rollouts["expired"] += len(stalest[2])
        return samples

    @rule(steps=st.integers(0, 2))
    def update_weights(self, steps):
        gone = {name: len(fate) for name, fate in self.fates.items()}
        self.version += steps
        expired = self.evict()
        result = self.controller.evict(self.version)
        new = [entry for name, fate in self.fates.items() for entry in fate[gone[name] :]]
        assert sorted(result.released_uids) == sorted(entry[0] for entry in new)
        assert sorted(result.released_keys) == sorted(expired + [s.key for entry in new for s in entry[2]])

    @rule()
    def train(self):
        batch = self.settings.train_batch_size
        required = self.required()
        must_wait = any(sum(self.age(e) >= age for e in self.ready) < number for age, number in required.items())
        assert self.controller.is_ready_for_training() == (len(self.ready) >= batch and not must_wait)
        if len(self.ready) < batch:
            with pytest.raises(RuntimeError, match=f"{len(self.ready)} of {batch} prompts are ready"):
                self.controller.get_training_data()
            return
        groups = self.controller.get_training_data()
        stalest, taken = sorted(self.ready, key=lambda e: -self.age(e)), []
        for age, number in required.items():
            missing = number - len(taken)
            taken += [entry for entry in stalest if entry not in taken and self.age(entry) >= age][: max(0, missing)]
        taken = (taken + [entry for entry in self.ready if entry not in taken])[:batch]
        self.ready = [entry for entry in self.ready if entry not in taken]
        assert [[g.prompt.uid, g.prompt.index, list(g.samples)] for g in groups] == taken
        for group in groups:
            sessions = [sample.key for sample in group.samples]
            is_mixed = self.is_mixed(group.samples[: self.settings.n])
            size = self.settings.group_size if is_mixed else self.settings.n
            assert group.num_passes == sum(sample.success for sample in group.samples)
            assert sessions == [f"{group.prompt.uid}_{i}" for i in range(size)]
            first = group.stages.count(0)
            assert group.stages == (0,) * self.settings.n + (1,) * (size - first)
        self.fates["trained"] += taken
        self.trained_keys += [sample.key for group in groups for sample in group.samples]
        self.rollouts["trained"] += sum(len(group.samples) for group in groups)
        self.rounds = 0

    def age(self, entry):
        """Age in weight versions: of the oldest sample; of a prompt without samples, since it was dispatched."""
        return self.version - min([sample.version for sample in entry[2]], default=self.dispatched_at)

    def required(self):
        """By age, oldest first: how many as old or older the next batch must have, or later batches have no room."""
        limit, batch = self.settings.max_staleness, self.settings.train_batch_size
        if limit is None or self.settings.stale == "drop":
            return {}
        share = (
            1 if self.settings.train_on == "all" else self.controller.metrics()["curriculum/expected_qualified_share"]
        )
        certain = [self.age(entry) for entry in self.ready + self.second + self.flying if entry[2]]
        open_ends = [self.age(entry) for entry in self.flying if not entry[2]]
        required = {}
        for age in sorted({*certain, *open_ends}, reverse=True):
            live = sum(a >= age for a in certain) + share * sum(a >= age for a in open_ends)
            later_batches = max(0, limit - age)
            required[age] = min(batch, max(0, math.ceil(live - later_batches * batch - 1e-9)))
        return required

    @precondition(lambda self: self.flying)
    @rule(
        data=st.data(), fault=st.sampled_from(["unknown", "extra", "twice", "live", "nan", "grade", "future", "back"])
    )
    def refuse_bad_results(self, data, fault):
        results, version = self.draw_results(data), self.version
        uid, _, old = data.draw(st.sampled_from(self.flying))
        good = Sample("fresh key", 1.0, 0)
        live_keys = sorted(s.key for entry in self.second + self.ready + self.flying for s in entry[2])
        if fault == "unknown":
            results["nobody"] = [good]
        elif fault == "extra":
            results[uid] = make_samples(
                uid, len(old), [1.0] * (1 + (self.settings.n_continue if old else self.settings.n))
            )
        elif fault == "twice":
            results[uid] = [good] * 2 if not old or self.settings.n_continue > 1 else [good] * 3
        elif fault == "live":
            results[uid] = [Sample(live_keys[0], 1.0, 0)] if live_keys else [good, good]
        elif fault == "nan":
            results[uid] = [Sample("fresh key", float("nan"), 0)]
        elif fault == "grade":  # valid if there is a threshold
            results[uid] = [Sample("fresh key", 1.5, 0)]
            version = version if self.settings.success_threshold is None else self.controller.weight_version - 1
        elif fault == "future":
            results[uid] = [Sample("fresh key", 1.0, version + 1)]
        else:
            version = self.controller.weight_version - 1
        before = snapshot(self.controller)
        with pytest.raises(ValueError, match="expected"):
            self.controller.update_prompts(results, version)
        assert snapshot(self.controller) == before

    @rule()
    def resume_from_checkpoint(self):
        saved = json.loads(json.dumps(self.controller.state_dict()))
        metrics = self.controller.metrics()
        self.controller = DataController(self.settings)
        add(self.controller, "what it held before is replaced")
        self.controller.load_state_dict(saved)
        assert self.controller.state_dict() == saved
        waiting = {"first_phase_prompts", "second_phase_prompts", "in_flight_prompts"}
        same = {name for name in metrics if name.removeprefix("curriculum/") not in waiting}
        assert all(self.controller.metrics()[name] == metrics[name] for name in same)
        self.first = [entry for entry in self.flying if not entry[2]] + self.first
        self.second = [entry for entry in self.flying if entry[2]] + self.second
        self.flying = []

    @invariant()
    def agrees(self):
        if not hasattr(self, "settings"):
            return
        controller = self.controller
        assert uids(controller.prompts_for_first_generation_phase) == [entry[0] for entry in self.first]
        assert uids(controller.prompts_for_second_generation_phase) == [entry[0] for entry in self.second]
        assert uids(controller.prompts_for_training) == [entry[0] for entry in self.ready]
        live = self.first + self.second + self.ready + self.flying
        counts = {name: len(fate) for name, fate in self.fates.items()}
        assert controller.conservation() == {"added": self.num_added, **counts, "live": len(live)}
        assert controller.rollout_conservation() == {
            **{name: self.rollouts[name] for name in ("generated", "trained", "uninformative", "expired", "failed")},
            "set_aside": 0,
            "buffered": sum(len(entry[2]) for entry in live),
        }
        assert controller.metrics()["curriculum/unaccounted_rollouts"] == 0
        assert self.num_added == sum(counts.values()) + len(live)
        everyone = [entry[0] for fate in self.fates.values() for entry in fate] + [entry[0] for entry in live]
        assert sorted(everyone) == sorted(f"u{i}" for i in range(self.num_added))
        assert len(self.trained_keys) == len(set(self.trained_keys))
        assert controller.live_names() == {e[0] for e in live} | {s.key for e in live for s in e[2]}
        assert controller.num_gen_batches == self.rounds
        assert controller.metrics()["curriculum/total/failed"] == self.failures
        for queue, entries in (
            (controller.prompts_for_second_generation_phase, self.second),
            (controller.prompts_for_training, self.ready),
        ):
            assert queue.oldest_version == min((s.version for e in entries for s in e[2]), default=None)


Model.TestCase.settings = settings(
    max_examples=int(1.5 * settings.default.max_examples),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestAgainstModel = Model.TestCase
