"""The keys of the Prompt screen. Keys with ctrl work while writing; letters work after `esc` has left the field."""

from __future__ import annotations

from textual.binding import Binding, BindingType

KEYS: list[BindingType] = [
    Binding("ctrl+j", "send", "send", id="prompt.send", tooltip="Send the prompt"),
    Binding("ctrl+t", "parameters", "parameters", id="prompt.parameters", tooltip="Set tokens, temperature, top-k, top-p, seed and stop, or a preset", priority=True),
    Binding("ctrl+g", "greedy", "greedy", id="prompt.greedy", tooltip="Switch between greedy and sampling", priority=True),
    Binding("ctrl+l", "score", "score", id="prompt.score", tooltip="Measure how likely each model finds the text in the field"),
    Binding("ctrl+o", "copy", "copy", show=False, id="prompt.copy", tooltip="Copy the marked answer, else the newest", priority=True),
    Binding("ctrl+r", "serve", "start a server", id="prompt.serve", tooltip="Serve the newest checkpoint; the command is shown first", priority=True),
    Binding("i,enter", "write", "write", id="prompt.write", tooltip="Write in the field (esc leaves it)"),
    Binding("up,k", "mark(1)", "question above", show=False, id="prompt.up", tooltip="Mark another question"),
    Binding("down,j", "mark(-1)", "question below", show=False, id="prompt.down", tooltip="Mark another question"),
    Binding("p", "view('colours')", "probabilities", id="prompt.colours", tooltip="Colour tokens by their probability"),
    Binding("n", "view('numbers')", "numbers", show=False, id="prompt.numbers", tooltip="Show the log-probability of each token"),
    Binding("t", "tokens", "tokens", show=False, id="prompt.tokens", tooltip="Show the tokens in a table, with the alternatives"),
    Binding("r", "again", "again", id="prompt.again", tooltip="Ask the marked question again with the next seed"),
    Binding("e", "edit", "edit", show=False, id="prompt.edit", tooltip="Edit the marked prompt in the field"),
    Binding("b", "branch", "branch", show=False, id="prompt.branch", tooltip="Continue from the marked answer"),
    Binding("a", "answerer", "who answers", id="prompt.answerer", tooltip="Choose who answers, or serve a checkpoint"),
    Binding("c", "compare", "compare", id="prompt.compare", tooltip="Choose a second server or checkpoint that answers too"),
    Binding("slash", "search", "search", key_display="/", show=False, id="prompt.search", tooltip="Search earlier prompts and answers"),
    Binding("s", "samples", "samples", id="prompt.samples", tooltip="Show how the answers to fixed prompts changed over the checkpoints"),
    Binding("f", "file", "file", show=False, id="prompt.file", tooltip="Ask all prompts of a file, one after the other"),
    Binding("x", "export", "export", show=False, id="prompt.export", tooltip="Write the questions and answers as Markdown"),
    Binding("y", "copy", "copy", id="prompt.yank", tooltip="Copy the marked answer, else the newest"),
    Binding("escape", "leave", "other keys", key_display="esc", id="prompt.leave", tooltip="Leave the field, so that letters and digits are keys"),
    Binding("escape", "stop_waiting", "stop waiting", key_display="esc", id="prompt.cancel", tooltip="Stop waiting for the answer", priority=True),
]  # fmt: skip
