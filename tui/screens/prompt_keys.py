"""The keys of the Prompt screen. Keys with ctrl work while writing; letters work after `esc` has left the field."""

from __future__ import annotations

from textual.binding import Binding, BindingType

KEYS: list[BindingType] = [
    Binding("ctrl+j", "send", "send", id="prompt.send", tooltip="Send the prompt"),
    Binding("ctrl+t", "parameters", "parameters", id="prompt.parameters", tooltip="Tokens, temperature, top-k, top-p, seed, stop; presets", priority=True),
    Binding("ctrl+g", "greedy", "greedy", id="prompt.greedy", tooltip="Always the likeliest token, or sampling again", priority=True),
    Binding("ctrl+l", "score", "score", id="prompt.score", tooltip="How likely each model finds the text in the field"),
    Binding("ctrl+o", "copy", "copy", show=False, id="prompt.copy", tooltip="Copy the marked answer, else the newest", priority=True),
    Binding("ctrl+r", "serve", "start a server", id="prompt.serve", tooltip="Serve the newest checkpoint; the command is shown first", priority=True),
    Binding("i,enter", "write", "write", id="prompt.write", tooltip="Into the field; esc leaves it, and the keys below work"),
    Binding("up,k", "mark(1)", "question above", show=False, id="prompt.up", tooltip="Mark the question above"),
    Binding("down,j", "mark(-1)", "question below", show=False, id="prompt.down", tooltip="Mark the question below"),
    Binding("p", "view('colours')", "probabilities", id="prompt.colours", tooltip="Colour tokens by their probability, or not"),
    Binding("n", "view('numbers')", "numbers", show=False, id="prompt.numbers", tooltip="Write each token's log-probability behind it, or not"),
    Binding("t", "tokens", "tokens", show=False, id="prompt.tokens", tooltip="The tokens in a table, with what else was likely"),
    Binding("r", "again", "again", id="prompt.again", tooltip="Ask the marked question again; a seed is counted up"),
    Binding("e", "edit", "edit", show=False, id="prompt.edit", tooltip="The marked prompt into the field, to be changed"),
    Binding("b", "branch", "branch", show=False, id="prompt.branch", tooltip="Go on from the marked answer: prompt and answer into the field"),
    Binding("a", "answerer", "who answers", id="prompt.answerer", tooltip="Choose who answers, or serve a checkpoint"),
    Binding("c", "compare", "compare", id="prompt.compare", tooltip="A second checkpoint answers beside the first, or none"),
    Binding("slash", "search", "search", key_display="/", show=False, id="prompt.search", tooltip="Find what was asked and answered before"),
    Binding("s", "samples", "samples", id="prompt.samples", tooltip="How the answers to the same prompts changed while training"),
    Binding("f", "file", "file", show=False, id="prompt.file", tooltip="Ask all prompts of a file, one after the other"),
    Binding("x", "export", "export", show=False, id="prompt.export", tooltip="Write the questions and answers as Markdown"),
    Binding("y", "copy", "copy", id="prompt.yank", tooltip="Copy the marked answer, else the newest"),
    Binding("escape", "leave", "other keys", key_display="esc", id="prompt.leave", tooltip="Out of the field: letters and digits are keys then"),
    Binding("escape", "stop_waiting", "stop waiting", key_display="esc", id="prompt.cancel", tooltip="Wait no longer for the answer", priority=True),
]  # fmt: skip
