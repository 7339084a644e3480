"""Pages: a block returns what was put in, none of it is read as HTML, and errors say what is wrong."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.golden_redaction.pages.golden import highlight
from verl_ext.report import page as pages
from verl_ext.report.__main__ import main
from verl_ext.report.blocks import pack, unpack
from verl_ext.report.page import Page, render

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_a_block_gives_its_value_back_and_has_no_letter_that_html_minds(value):
    block = pack(value)
    assert unpack(block) == value
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", block)


def test_the_same_value_gives_the_same_block():
    assert pack({"a": [1, 2]}) == pack({"a": [1, 2]})


def test_half_a_surrogate_pair_of_a_broken_text_does_not_stop_a_page():
    assert unpack(pack("a\ud800b")) == "a?b"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_json_is_refused(number):
    with pytest.raises(ValueError, match="JSON compliant"):
        pack([number])


def test_the_title_and_the_names_of_blocks_are_escaped():
    html = render(Page("<b>&\"'", ("charts.js",), {'"><script>': pack(1)}))
    assert "<title>&lt;b&gt;&amp;&#34;&#39;</title>" in html
    assert 'data-block="&#34;&gt;&lt;script&gt;"' in html


def test_a_page_names_no_other_file_and_no_address():
    html = render(Page("title", ("charts.js",), {"index": pack({})}))
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", html)
    assert "@import" not in html
    assert "url(" not in html
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "connect-src" not in policy[1]
    assert "unsafe-eval" not in policy[1]


def test_a_script_that_a_browser_would_cut_is_refused(monkeypatch):
    monkeypatch.setattr(pages, "_static", lambda name: 'const a = "</SCRIPT>";')
    with pytest.raises(ValueError, match="ends a script"):
        render(Page("title", ()))


def test_the_data_is_in_the_page_or_stays_with_the_server():
    page = Page("title", ("charts.js",), {"index": pack(["marker"])})
    assert pack(["marker"]) in render(page)
    assert pack(["marker"]) not in render(page, live_version=1)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\ufeff")))
def test_highlighting_changes_no_letter(source):
    assert "".join(text for _, text in highlight(source)) == source


def test_highlighting_knows_python():
    kinds = {text: kind for kind, text in highlight("def f():\n    return 7  # why")}
    assert (kinds["def"], kinds["f"], kinds["7"], kinds["# why"]) == ("k", "nf", "mi", "c1")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "verl_ext.report", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trace", "{folder}"], "golden_entries.jsonl: no such file"),
        (["trace", "{folder}/other.jsonl"], "no such file"),
        (["trace", "{folder}/text.jsonl"], "text.jsonl, line 1: not a line of JSON"),
        (["trace", "{folder}/metrics.jsonl"], "metrics.jsonl, line 2 does not follow the schema"),
        (["golden", "--tasks", "{folder}/none.json"], "none.json: no such file"),
        (["golden", "--tasks", "{folder}/text.jsonl"], "not readable as JSON"),
        (["trace", "{folder}/empty.jsonl", "--model", "{folder}/none"], "no tokenizer can be loaded"),
    ],
)
def test_what_is_missing_or_no_trace_is_said_in_one_message(tmp_path: Path, capsys, arguments, words):
    (tmp_path / "text.jsonl").write_text("This is not JSON.\n")
    (tmp_path / "metrics.jsonl").write_text("\n".join(["", json.dumps({"training/global_step": 1}), ""]))
    (tmp_path / "empty.jsonl").write_text("")
    output = tmp_path / "page.html"
    status = main([argument.format(folder=tmp_path) for argument in arguments] + ["--output", str(output)])
    said = capsys.readouterr().err
    assert status == 2
    assert words in said
    assert "Traceback" not in said
    assert not output.exists()


def test_the_command_says_what_it_can_do():
    done = _run("--help")
    assert done.returncode == 0
    assert {"golden", "trace"} <= set(re.findall(r"\w+", done.stdout))
