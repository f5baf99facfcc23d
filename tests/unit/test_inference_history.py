"""The history of prompts and answers: on disk, searched, as Markdown; and the parameters and prompts that users write."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import UserError
from backends.inference import history
from backends.inference.history import Turn
from backends.inference.markdown import as_markdown
from backends.inference.parameters import (
    PRESETS,
    preset_of,
    request_of,
    stop_texts,
    stop_words,
    with_preset,
    words,
)
from backends.inference.prompts_file import read_prompts
from backends.inference.request import Request, Token

GOOD = {"tokens": "64", "temperature": "1", "top_k": "0", "top_p": "0", "seed": ""}
TOKENS = (Token("a", None), Token("b", -0.5, (("b", -0.5), ("c", -1.5))))


def test_history_is_read_back_in_order_and_survives_damage(tmp_path: Path) -> None:
    path = tmp_path / "outputs" / "prompts.jsonl"
    turns = [
        Turn(1.0, "u", Request("先", 8, 0.5, seed=7, stop=("\n",)), "後", tokens_per_second=3.0, tokens=TOKENS, of_prompt=1),
        Turn(2.0, "u", Request("two\nlines"), error="refused", answered_by="iteration 8", parent=1.0),
    ]  # fmt: skip
    history.append(path, turns[:1])
    with path.open("ab") as file:
        file.write(
            b'\xff\xfe{"at": \n[1]\n{"prompt": "no time"}\n{"at": "x", "server": "u", "prompt": {}}\nnull\n'
            b'{"at": 1e999, "prompt": 3}\n'
        )
    history.append(path, turns[1:])
    assert history.read(path) == turns
    assert turns[0].answer_tokens == TOKENS[1:]


def test_damaged_fields_of_a_turn_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"at": 1, "prompt": "p", "parameters": {"tokens": "many", "top_k": true, "temperature": 2, "stop": [1, "x"]},'
        ' "tokens": [["a", "b"], 3, [], ["c", -1, [["d", -2], "e"]]], "seconds": null}\n'
    )
    (turn,) = history.read(path)
    assert turn.request == Request("p", temperature=2.0, stop=("x",))
    assert turn.tokens == (Token("a"), Token("3"), Token(""), Token("c", -1.0, (("d", -2.0),)))


@given(st.binary(max_size=200))
def test_no_line_of_a_history_raises_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(content)
    assert all(isinstance(turn, Turn) for turn in history.read(path))


def test_a_missing_history_is_empty(tmp_path: Path) -> None:
    assert history.read(tmp_path / "none.jsonl") == []


def test_answers_to_one_question_are_grouped() -> None:
    one, two, three = (
        Turn(1.0, "a", Request("x")),
        Turn(1.0, "b", Request("x")),
        Turn(2.0, "a", Request("x"), scored=True),
    )
    assert history.exchanges([one, two, three]) == [(one, two), (three,)]


def test_nothing_in_an_answer_is_read_as_markdown() -> None:
    text = as_markdown(
        [Turn(1.0, "u", Request("# no\n```"), "````\n*x*", "a `b`", answered_by="iteration 8")]
    )
    assert "````text\n# no\n```\n````\n" in text and "`````text\n````\n*x*\n`````\n" in text
    assert "Error: `a 'b'`" in text and "`iteration 8`, 64 tokens" in text


# Parameters.


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokens": "0"}, "tokens is from 1"),
        ({"temperature": "0"}, "temperature is from above 0"),
        ({"temperature": "nan"}, "temperature is from above 0"),
        ({"top_k": "2000"}, "top-k is from 0 to 1000"),
        ({"top_p": "1.5"}, "top-p is from 0 to 1"),
        ({"top_k": "4", "top_p": "0.5"}, "exclude each other"),
        ({"seed": "1.5"}, "seed: '1.5' is not a whole number"),
        ({"tokens": ""}, "tokens: '' is not"),
    ],
)
def test_parameters_outside_the_limits_are_refused(changed: dict[str, str], said: str) -> None:
    assert request_of(GOOD) == Request("")
    with pytest.raises(UserError) as caught:
        request_of(GOOD | changed)
    assert said in caught.value.message


def test_parameters_in_a_line() -> None:
    request = request_of(GOOD | {"top_k": "40", "seed": "7", "stop": r"\n\n, END"})
    assert words(request) == r"64 tokens · temperature 1 · top-k 40 · seed 7 · stop \n\n, END"
    assert words(Request("", top_k=1, seed=3)) == "64 tokens · greedy"


@given(
    st.lists(
        st.text(st.characters(categories=("L", "P", "Nd", "Zs", "Cc")), min_size=1).filter(
            lambda t: t == t.strip() and t
        )
    )
)
def test_stop_texts_are_read_as_they_are_written(texts: list[str]) -> None:
    assert stop_texts(stop_words(tuple(texts))) == tuple(texts)


def test_presets_leave_tokens_seed_and_stop_texts() -> None:
    request = Request("x", 5, seed=7, stop=("\n",))
    for name in PRESETS:
        changed = with_preset(request, name)
        assert preset_of(changed) == name
        assert (changed.prompt, changed.tokens, changed.seed, changed.stop) == ("x", 5, 7, ("\n",))
        assert not (changed.top_k and changed.top_p)
    assert preset_of(Request("", temperature=0.123)) is None


# Prompts from a file.


def test_a_file_has_one_prompt_a_line_or_json_lines(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(b"one\n\n \ntwo \xff\n")
    assert read_prompts(tmp_path / "p.txt") == ["one", "two �"]
    (tmp_path / "p.jsonl").write_text('{"prompt": "one\\nline"}\n\n{"text": "two\u2028lines"}\r\n')
    assert read_prompts(tmp_path / "p.jsonl") == ["one\nline", "two\u2028lines"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.txt", b"\n", "holds no prompt"),
        ("p.jsonl", b'{"text": "a"}\n{"no": 1}\n', "line 2"),
        ("none", None, "No such file"),
    ],
)
def test_files_without_prompts_are_refused(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_prompts(tmp_path / name)
    assert said in caught.value.message and caught.value.remedy
