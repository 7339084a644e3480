"""What holds generation up while a checkpoint is written."""

from pathlib import Path
from types import SimpleNamespace

from omegaconf import OmegaConf

from verl_ext.run.manifest import describe_files
from verl_ext.trainer import checkpointing


def test_generation_continues_before_all_files_are_read_for_their_checksums(tmp_path: Path, monkeypatch):
    events: list[str] = []
    settings = {"default_local_dir": str(tmp_path), "max_actor_ckpt_to_keep": None, "max_critic_ckpt_to_keep": None}
    trainer = SimpleNamespace(
        config=OmegaConf.create({"trainer": settings}),
        trainer_mode="separate_async",
        global_steps=3,
        checkpoint_callback=SimpleNamespace(on_save=lambda **_: events.append("published")),
    )

    def save_verls() -> None:
        events.append("verl's files")
        (Path(trainer.config.trainer.default_local_dir) / "global_step_3/data.pt").write_bytes(b"rows")

    def describe(folder: Path, names: list[str]):
        events.append("checksums")
        return describe_files(folder, names)

    monkeypatch.setattr(checkpointing, "describe_by_nodes", describe)
    checkpointing.save(trainer, {"parts": {}}, save_verls, lambda: events.append("generation continues"))  # type: ignore[arg-type]
    assert events == ["verl's files", "generation continues", "checksums", "published"]
    assert (tmp_path / "global_step_3/data.pt").read_bytes() == b"rows"
