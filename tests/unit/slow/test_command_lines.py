"""Command lines as people write them, right and wrong: each is accepted, or refused with its message.

All are dry runs, so that everything up to the start of Ray is real. No command ends in a traceback.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from command_server import CommandServer
from each import check_each
from stand_ins import StandIns, make_stand_ins

# Two seconds per command on idle cores; they share the machine with other tests.
ALL_LINES = 2400.0  # seconds
ACCEPTED = "nothing was started: without dry_run=true the same command trains"

DEMO = ["recipe.fast_dapo.main", "+backend=cpu", "+experiment=arithmetic_two_phase"]
TRACIN = [
    "recipe.tracin.main",
    "+backend=cpu",
    "+experiment=tracin_arithmetic",
    "tracin.validation_files={data}/val.parquet",
]
GPU = ["recipe.fast_dapo.main", "+experiment=dapo17k_qwen2_5_1_5b"]
LENGTHS = ["data.max_response_length=10", "data.max_prompt_length=20"]
PLAIN = ["recipe.fast_dapo.main", *LENGTHS]
VERLS = ["verl.trainer.main_ppo", *LENGTHS]

STAND_INS = [
    "data.train_files={data}/train.parquet",
    "data.val_files={data}/val.parquet",
    "actor_rollout_ref.model.path={models}/whole",
    "run_dir={folder}/run",
    "dry_run=true",
]
REWARD = "reward.custom_reward_function.path={rewards}/"
DEFAULT_REWARD = "reward.custom_reward_function.path=null"
NO_LORA = "actor_rollout_ref.model.lora_rank=0"
ROLLOUT = "actor_rollout_ref.rollout"
SEPARATE = (
    f"trainer.v1.trainer_mode=separate_async {ROLLOUT}.nnodes=1 data.train_batch_size=64 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=32 trainer.v1.separate_async.parameter_sync_step=2"
)
POSTERIOR = "curriculum.baseline=posterior algorithm.adv_estimator=posterior"


@dataclass(frozen=True)
class Line:
    """A command line: `base` with the stand-ins, then `words`; `{data}` and the like are their folders.

    Attributes:
        base: Program and configuration.
        words: Its own overrides, separated by spaces.
        expected: A regular expression in what is printed; the command is refused unless it is `ACCEPTED`.
        also: A second regular expression that must match.
    """

    base: list[str]
    words: str = ""
    expected: str = ACCEPTED
    also: str = ""

    def __str__(self) -> str:
        return " ".join([*self.base, self.words])


GOOD = [
    Line(DEMO, also="arithmetic: 0 for a wrong answer, 1 for the right one"),
    Line(PLAIN, also="this machine has 0"),
    Line(PLAIN, "trainer.n_gpus_per_node=4 actor_rollout_ref.actor.strategy=fsdp2"),
    Line(PLAIN, "actor_rollout_ref.actor.strategy=fsdp"),
    Line(PLAIN, "data.train_batch_size=32 actor_rollout_ref.rollout.n=2 actor_rollout_ref.rollout.n_continue=6"),
    Line(PLAIN, "+signal=two_phase", also="64 prompts x 16 rollouts = 1,024 rollouts"),
    Line(PLAIN, "+signal=two_phase algorithm.adv_estimator=gae critic.model.path={models}/whole"),
    Line(PLAIN, "+signal=two_phase algorithm.adv_estimator=grpo actor_rollout_ref.actor.use_kl_loss=true"),
    Line(PLAIN, "+signal=plain", also="64 prompts x 16 rollouts = 1,024 rollouts"),
    Line(PLAIN, "+signal=plain algorithm.filter_groups.enable=true data.gen_batch_size=1"),
    Line(PLAIN, "curriculum.enable=false"),
    Line(PLAIN, "curriculum.enable=false algorithm.adv_estimator=grpo algorithm.filter_groups.enable=true"),
    Line(["recipe.fast_dapo.main", "+experiment=[dapo17k_qwen2_5_1_5b,dapo17k_two_phase]"], also="128 prompts x 16"),
    Line([*GPU, "+signal=two_phase"], also="64 prompts x 16 rollouts = 1,024 rollouts"),
    Line([*GPU, "+signal=plain"], also="64 prompts x 16 rollouts = 1,024 rollouts"),
    Line(GPU),
    Line(GPU, "trainer.logger=[console,wandb]"),
    Line(["recipe.fast_dapo.main", "+experiment=[dapo17k_qwen2_5_1_5b,one_gpu]"]),
    Line(["recipe.fast_dapo.main", "+experiment=[dapo17k_qwen2_5_1_5b,dapo17k_grpo]"]),
    Line(DEMO, "curriculum.schedule=streaming curriculum.predictor=posterior curriculum.screening=sequential"),
    Line(DEMO, "curriculum.schedule=streaming curriculum.correction=horvitz_thompson"),
    Line(["recipe.fast_dapo.main", "+backend=cpu", "+experiment=arithmetic_demo"], also="32 prompts x 4 rollouts"),
    Line(DEMO, POSTERIOR, also="16 prompts x 16 rollouts = 256 rollouts"),
    Line(
        DEMO,
        f"{POSTERIOR} curriculum.train_on=all {ROLLOUT}.n=2 {ROLLOUT}.n_continue=6",
        also="a round +16 prompts x 2 = 32 .*[^$]*at most: prompts whose screening is not mixed .* 2 rollouts",
    ),
    Line(
        DEMO,
        f"{POSTERIOR} curriculum.train_on=all {ROLLOUT}.n=1 {ROLLOUT}.n_continue=0",
        also="16 prompts x 1 rollouts = 16 rollouts",
    ),
    Line(PLAIN, "+signal=plain algorithm.adv_estimator=posterior"),
    Line(DEMO, "data.train_files=[{data}/train.parquet] data.val_files=[{data}/val.parquet]"),
    Line(
        DEMO,
        f"data.train_files={{data}}/verls_gsm8k.parquet {DEFAULT_REWARD}",
        also="openai/gsm8k: 0",
    ),
    Line(
        DEMO,
        f"data.train_files={{data}}/math.parquet {DEFAULT_REWARD}",
        also="math500: 0 for a wrong",
    ),
    Line(
        DEMO,
        "data.train_files={data}/numbers.jsonl data.val_files={data}/numbers.jsonl data.prompt_key=messages",
        also="Each prompt gets an index made",
    ),
    Line(DEMO, f"{REWARD}own.py curriculum.success_metric=score"),
    Line(DEMO, f"{REWARD}graded.py"),
    Line(DEMO, f"{REWARD}graded.py curriculum.success_threshold=null curriculum.band=[0.2,0.8]"),
    Line(DEMO, f"{REWARD}signed.py"),
    Line(DEMO, f"{REWARD}waiting.py"),
    Line(DEMO, "data.val_files={data}/train.parquet", also="warning +600 of 600 prompts of .* are also trained on"),
    Line(DEMO, "trainer.n_gpus_per_node=2"),
    Line(DEMO, "+actor_rollout_ref.rollout.engine_kwargs.vllm.max_logprobs=64"),
    Line(DEMO, "+actor_rollout_ref.model.override_config.attention_dropout=0.0"),
    Line(DEMO, "+data.cache_dir={folder}/cache"),
    Line(DEMO, "+my_node.own=1"),
    Line(DEMO, "actor_rollout_ref.model.lora_rank=4 actor_rollout_ref.model.lora_alpha=8"),
    Line(TRACIN, also="LoRA"),
    Line(TRACIN, f"{NO_LORA} tracin.parameters=down_proj"),
    Line(PLAIN, "trainer.v1.trainer_mode=colocate_async"),
    Line(TRACIN, "trainer.v1.trainer_mode=colocate_async"),
    Line(PLAIN, f"{SEPARATE} {ROLLOUT}.checkpoint_engine.backend=nccl", also="the run takes 8 GPUs and 8 GPUs"),
    Line(TRACIN, f"{SEPARATE} actor_rollout_ref.model.lora.merge=true"),
    # verl's own command.
    Line(VERLS, "+recipe=fast_dapo", also="256 prompts x 4 rollouts = 1,024 rollouts"),
    Line(VERLS, "+recipe=fast_dapo +signal=two_phase algorithm.adv_estimator=grpo", also="64 prompts x 16 rollouts"),
    Line(VERLS, "+recipe=tracin tracin.validation_files={data}/val.parquet", also="LoRA"),
    Line(["verl.trainer.main_ppo", "+recipe=fast_dapo", "+backend=cpu", "+experiment=arithmetic_demo"]),
]

BAD = [
    # Names.
    Line(DEMO, "curriculum.schedul=streaming", "Key 'schedul' is not in struct"),
    Line(DEMO, "+curriculum.schedul=streaming", "curriculum.schedul does not exist; did you mean curriculum.schedule"),
    Line(DEMO, "+data.trian_batch_size=16", "data.trian_batch_size does not exist; did you mean data.train_batch_size"),
    Line(DEMO, "+curiculum.enable=false", "curiculum does not exist; did you mean curriculum"),
    Line(DEMO, "+actor_rollout_ref.actor.optim.learning_rate=1", r"optim.learning_rate does not exist"),
    Line(
        DEMO,
        "+trainer.v1.sampler.max_off_policy_treshold=4",
        "did you mean trainer.v1.sampler.max_off_policy_threshold",
    ),
    Line(DEMO, "+experiment=aritmetic_demo", "Could not find 'experiment/aritmetic_demo'|Multiple values"),
    Line(["recipe.fast_dapo.main", "backend=cpu"], "", r"\+backend=cpu"),
    Line(DEMO, "data.train_batch_size 32", "data.train_batch_size 32|mismatched input"),
    # Values.
    Line(DEMO, "actor_rollout_ref.rollout.n=1", "with one screening rollout .*: raise n to 2 or more, or set train_on"),
    Line(DEMO, "actor_rollout_ref.rollout.n=0", "rollout.n must be an int >= 1, got 0"),
    Line(DEMO, "curriculum.train_on=all", "curriculum.train_on=all needs curriculum.baseline=posterior"),
    Line(DEMO, "algorithm.adv_estimator=posterior", "curriculum.baseline=posterior: set that as well"),
    Line(
        PLAIN, "curriculum.enable=false algorithm.filter_groups.enable=true", "set rloo or grpo, as .signal=plain does"
    ),
    Line(
        PLAIN, "data.train_batch_size=1024 data.gen_batch_size=64", "600 prompts, fewer than one batch of data.train_b"
    ),
    Line(DEMO, "curriculum.baseline=posterior", "adv_estimator=rloo has no effect with curriculum.baseline=posterior"),
    Line(
        PLAIN,
        "algorithm.adv_estimator=grpo",
        "adv_estimator=grpo has no effect .*for the estimator \\+signal=two_phase",
    ),
    Line(DEMO, "data.train_batch_size=0", "train_batch_size"),
    Line(DEMO, "data.max_response_length=0", "data.max_response_length must be a whole number of at least 1, got 0"),
    Line(DEMO, "algorithm.adv_estimator=rlo", "algorithm.adv_estimator must be one of .*rloo.*; got 'rlo'"),
    Line(DEMO, "actor_rollout_ref.actor.policy_loss.loss_mode=vanila", "loss_mode must be one of .*vanilla"),
    Line(DEMO, "reward.reward_manager.name=daop", "reward.reward_manager.name must be one of .*dapo"),
    Line(DEMO, "algorithm.adv_estimator=gae", "algorithm.adv_estimator=gae needs the values of a critic"),
    Line(PLAIN, "+signal=two_phase algorithm.adv_estimator=gae", r"critic.model.path=.*no such folder"),
    Line(DEMO, "trainer.total_training_steps=0", "trainer.total_training_steps must be a whole number of at least 1"),
    Line(DEMO, "actor_rollout_ref.actor.optim.lr=-1", "optim.lr must be a number of at least 0, got -1"),
    Line(DEMO, "actor_rollout_ref.actor.optim.lr=fast", "optim.lr must be a number of at least 0, got 'fast'"),
    Line(DEMO, "trainer.logger=[wandbb]", "trainer.logger must be of .*wandb.*; got 'wandbb'"),
    Line(DEMO, "trainer.logger=[swanlab]", "trainer.logger=swanlab needs the package swanlab"),
    Line(DEMO, "actor_rollout_ref.rollout.temperature=0", "temperature=0 makes all rollouts of a prompt equal"),
    Line(DEMO, f"{ROLLOUT}.gpu_memory_utilization=60", "gpu_memory_utilization must be a number above 0"),
    Line(DEMO, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16", "ppo_max_token_len_per_gpu=16 holds no row of"),
    Line(DEMO, "actor_rollout_ref.actor.ppo_mini_batch_size=7", "must be a multiple of"),
    Line(DEMO, "curriculum.success_metric=accuracy", "curriculum.success_metric=accuracy is not among what .*acc"),
    Line(DEMO, "curriculum.success_threshold=5", "success_threshold=5 is not below what a right answer earns, 1"),
    Line(
        DEMO,
        f"{REWARD}signed.py curriculum.success_threshold=null",
        "curriculum.success_metric=acc is -1 for .* curriculum.success_threshold=null expects a grade from 0 to 1",
    ),
    Line(DEMO, "curriculum.screening=sequential", "needs curriculum.schedule=streaming"),
    # Features of verl that cannot be combined with this.
    Line(
        PLAIN,
        "trainer.v1.trainer_mode=separate_async",
        "rollout.nnodes=0: the engines have their own devices|train_batch_size = parameter_sync_step x ppo_mini",
    ),
    Line(DEMO, SEPARATE, "and with trainer.v1.trainer_mode=separate_async generation never stops.*schedule=streaming"),
    Line(
        DEMO, "trainer.v1.trainer_mode=colocate_async", "schedule=merged waits for every rollout .*schedule=streaming"
    ),
    Line(PLAIN, f"{ROLLOUT}.name=sglang", "rollout.name=sglang, and it is not installed; sglang==0.5.12 is needed"),
    Line(PLAIN, f"{ROLLOUT}.name=trtllm", "rollout.name=trtllm, and it is not installed; tensorrt_llm is needed"),
    Line(DEMO, f"{ROLLOUT}.name=sglang", "the CPU backend serves only with vLLM. Set rollout.name=vllm"),
    Line(["recipe.golden_redaction.main"], f"{ROLLOUT}.name=sglang", "only vLLM returns the log-probs of tokens"),
    Line(
        PLAIN, "model_engine=megatron", "model_engine=megatron, and megatron-core is not installed; megatron-core and"
    ),
    Line(PLAIN, "model_engine=veomni", r"and veomni is not installed; veomni==0\.1\.11 is needed"),
    Line(PLAIN, "model_engine=torchtitan trainer.save_freq=20", "writes weights only at every 500th step"),
    Line(PLAIN, "actor_rollout_ref.actor.strategy=megatron", "it is of another engine than model_engine"),
    Line(PLAIN, "tracin.enable=true model_engine=megatron", "scores are computed inside FSDP2's modules"),
    Line(DEMO, "model_engine=megatron", "the CPU backend trains only with FSDP2. Leave it at dp"),
    Line(["recipe.golden_redaction.main"], "model_engine=megatron", "single tokens are trained inside verl's"),
    Line(GPU, "model_engine=veomni", "entropy_from_logits_with_chunking is an option of verl's FSDP engines"),
    Line(
        PLAIN,
        "model_engine=megatron +actor_rollout_ref.actor.megatron.tensor_size=2",
        "tensor_size does not exist",
    ),
    Line(PLAIN, "actor_rollout_ref.actor.ulysses_sequence_parallel_size=3", "size=3 does not divide trainer.nnodes x"),
    # Data.
    Line(DEMO, "data.train_files={data}/nothing.parquet", "nothing"),
    Line(DEMO, "data.train_files={data}/few.parquet", "hold 10 prompts"),
    Line(DEMO, "data.train_files={data}/not_parquet.parquet", "not a readable parquet file"),
    Line(DEMO, "data.train_files={data}", "expected a file, found a folder"),
    Line(DEMO, "data.prompt_key=question", "question"),
    Line(DEMO, "data.max_prompt_length=3", "Prompts longer than data.max_prompt_length=3"),
    Line(["recipe.fast_dapo.main"], "data.train_files=~/data/rlhf/gsm8k/train.parquet", "gsm8k/train.parquet"),
    # Models.
    Line(DEMO, "actor_rollout_ref.model.path={models}/nowhere", "no such folder"),
    Line(DEMO, "actor_rollout_ref.model.path={models}/no_weights", "there are no weights"),
    Line(DEMO, "actor_rollout_ref.model.path={models}/cut_weights", "model.safetensors is incomplete"),
    Line(DEMO, "actor_rollout_ref.model.path={models}/no_config", "there is no config.json"),
    Line(DEMO, "actor_rollout_ref.model.path={models}/empty", "there is no config.json"),
    Line(DEMO, "actor_rollout_ref.model.path={models}/no_template", "the tokenizer has no chat template"),
    Line(DEMO, "actor_rollout_ref.model.path={models}/short_context", "the model's context is 24"),
    Line(DEMO, "actor_rollout_ref.model.path=Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-1.5B"),
    # Rewards.
    Line(DEMO, f"{REWARD}nowhere.py", r"nowhere\.py:compute_score: FileNotFoundError"),
    Line(DEMO, f"{REWARD}own.py reward.custom_reward_function.name=compute_scoer", "compute_scoer"),
    Line(DEMO, f"{REWARD}broken.py", r"broken\.py:compute_score: .*was never closed|SyntaxError|broken"),
    Line(DEMO, f"{REWARD}raising.py", r"failed for data_source=arithmetic .*TypeError: .*raising\.py, line 2"),
    Line(DEMO, f"{REWARD}text.py", "expected a number, or a dict with 'score', got 'right'"),
    Line(DEMO, f"{REWARD}dying.py", "ended its process with exit code 3"),
    Line(DEMO, f"{REWARD}own.py", "curriculum.success_metric=acc is not among what .* returns .*: length, score"),
    Line(DEMO, "reward.custom_reward_function.path=pkg://verl_ext.rewards.arithmetics", "arithmetics"),
    Line(
        DEMO,
        f"data.train_files={{data}}/unknown_source.parquet {DEFAULT_REWARD}",
        "has a reward function for data_source 'somebody/else'",
    ),
    # Folders.
    Line(DEMO, "run_dir={data}/train.parquet/run", r"train\.parquet is a file: name a folder"),
    Line(DEMO, "run_dir=/proc/nope/run", "/proc cannot be written to|/proc"),
    Line(DEMO, "trainer.default_local_dir={data}/train.parquet", "is a file: name a folder"),
    # TracIn.
    Line(
        TRACIN,
        f"{NO_LORA} tracin.parameters=no_such",
        "none of the model's .* matches 'no_such'",
    ),
    Line(TRACIN, f"{NO_LORA} tracin.parameters=lora", "the model has no LoRA"),
    Line(TRACIN, "tracin.validation_files={data}/train.parquet", "must not be trained on"),
    Line(TRACIN, "+tracin.validation.kk=2", "tracin.validation.kk does not exist; did you mean tracin.validation.k"),
    Line(TRACIN, "tracin.validation_files={data}/nothing.parquet", "nothing"),
    # Golden redaction.
    Line(["recipe.golden_redaction.main", "--config-name=golden_redaction_cpu"], "", "test_pairs"),
    Line(["recipe.golden_redaction.main"], "golden.redaction.grow_above=2", "grow_above must be"),
    # verl's own command.
    Line(VERLS, "+recipe=[fast_dapo,tracin]", "names several recipes: .*NODE.enable=true"),
    Line(
        VERLS,
        "+signal=two_phase +recipe=fast_dapo",
        r"would replace what \+signal sets: write \+recipe=fast_dapo first",
    ),
    Line(VERLS, "+recipe=fast_dapoo", "Could not find 'recipe/fast_dapoo'"),
    Line(VERLS, "+recipe=fast_dapo +curiculum.enable=false", "did you mean curriculum"),
    Line(VERLS, "+recipe=fast_dapo algorithm.adv_estimator=grpo curriculum.train_on=all", "has no effect with"),
    Line(
        VERLS,
        "+recipe=fast_dapo hydra.sweep.dir={folder}/multirun --multirun",
        r"python -m recipe\.fast_dapo\.main --multirun",
    ),
    # The posterior baseline belongs to Fast DAPO.
    Line(TRACIN, "algorithm.adv_estimator=posterior", "algorithm.adv_estimator must be one of .*; got 'posterior'"),
    Line(
        ["recipe.golden_redaction.main"],
        "algorithm.adv_estimator=posterior",
        "algorithm.adv_estimator=posterior: .*Leave it at grpo",
    ),
]


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    return make_stand_ins(tmp_path_factory.mktemp("stand_ins"))


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, CommandServer]]:
    """One server per platform of verl: a process keeps the platform that it started with."""
    made = {platform: CommandServer(platform) for platform in ("", "cpu")}
    yield made
    for server in made.values():
        server.close()


def _check(line: Line, stand_ins: StandIns, servers: dict[str, CommandServer], slowest: list[float]) -> None:
    folder = stand_ins.folder
    places = {"folder": folder, "data": folder / "data", "models": folder / "models", "rewards": folder / "rewards"}
    own = line.words.split(" ") if " 32" not in line.words else [line.words]
    words = [word.format(**places) for word in [*line.base, *STAND_INS, *own] if word]
    on_cpu = any(word.endswith("backend=cpu") or word.endswith("_cpu") for word in words)
    ended = servers["cpu" if on_cpu else ""].run(words)
    slowest.append(ended.seconds)
    assert "Traceback" not in ended.printed, ended.printed
    assert re.search(line.expected, ended.printed), ended.printed
    assert re.search(line.also, ended.printed), ended.printed
    assert "[validate_config]" not in ended.printed
    assert (ended.code == 0) == (line.expected == ACCEPTED), ended.printed


def test_some_of_each(stand_ins: StandIns, servers: dict[str, CommandServer]):
    """They take two seconds each, so all of them run only for a release."""
    check_each([*GOOD[::20], *BAD[::20]], lambda line: _check(line, stand_ins, servers, []))


@pytest.mark.release
@pytest.mark.timeout(ALL_LINES)
def test_what_works_is_accepted(stand_ins: StandIns, servers: dict[str, CommandServer]):
    check_each(GOOD, lambda line: _check(line, stand_ins, servers, []))


@pytest.mark.release
@pytest.mark.timeout(ALL_LINES)
def test_mistakes_are_refused_with_a_sentence(stand_ins: StandIns, servers: dict[str, CommandServer]):
    seconds: list[float] = []
    check_each(BAD, lambda line: _check(line, stand_ins, servers, seconds))
    print(f"processor seconds after the imports: {max(seconds):.1f} at most")


def test_there_are_enough():
    assert len(GOOD) + len(BAD) >= 60
