"""`verl-signal NAME`: the documented `python -m` commands by a short name."""

import os
import sys

import pytest

from verl_ext.command_line import main, programs


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("fast_dapo", "recipe.fast_dapo.main"),
        ("golden_redaction.evaluate", "recipe.golden_redaction.evaluate"),
        ("tracin", "recipe.tracin.main"),
        ("report", "verl_ext.report"),
        ("submit", "verl_ext.submit"),
        ("data.gsm8k", "data_preprocess.gsm8k"),
    ],
)
def test_a_name_becomes_the_documented_command(name: str, module: str, monkeypatch: pytest.MonkeyPatch):
    started = []
    monkeypatch.setattr(os, "execv", lambda *command: started.append(command))
    main([name, "run", "--png", "a folder"])
    assert started == [(sys.executable, [sys.executable, "-m", module, "run", "--png", "a folder"])]


def test_what_is_no_program_has_no_name():
    assert not programs().keys() & {"fast_dapo.trainer", "fast_dapo.main", "data.ending", "core", "data.__init__"}


def test_every_program_says_what_it_is_for(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 0
    _, lines = capsys.readouterr().out.split("\n\n")
    assert [line.split()[0] for line in lines.splitlines()] == list(programs())
    assert all(program.purpose for program in programs().values())


def test_a_name_that_is_not_there_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]):
    assert main(["fast_dappo"]) == 2
    assert capsys.readouterr().err == (
        "verl-signal has no 'fast_dappo': did you mean 'fast_dapo'? `verl-signal --help` lists the programs\n"
    )
