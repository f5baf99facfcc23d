"""Answers requests from a checkpoint, within its limits; if asked to, it follows the newest checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.demo import checkpoint
from backends.demo.protocol import RefusedError, Request
from backends.demo.sampling import Gpt, beam_search, generate

MAX_TOKENS_TO_OOM = 12000  # of core_r0.8.0: batch × length


class Answering:
    """Not thread-safe: like core_r0.8.0's, the server answers one request at a time."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder, self._say = folder, say
        self.iteration = 0
        self._gpt: Gpt | None = None

    def load(self, iteration: int) -> None:
        """Answer from this checkpoint from now on. Raises CheckpointError and keeps the current one."""
        self._say(f" loading checkpoint from {self.folder} at iteration {iteration}")
        state = checkpoint.load(self.folder, iteration)
        self._gpt = Gpt(state.weights, state.shape, state.tokenizer())
        self.iteration = iteration
        self._say(f" checkpoint version {checkpoint.VERSION}")
        self._say(
            f"  successfully loaded checkpoint from {self.folder} [ t 0, p 0 ] at iteration {iteration}"
        )

    def follow(self) -> None:
        """Load the checkpoint that the tracker names. If it cannot be read, print why and keep the current one."""
        try:
            newest = checkpoint.tracked_iteration(self.folder)
            if newest is not None and newest != self.iteration:
                self.load(newest)
        except checkpoint.CheckpointError as error:
            self._say(f"WARNING: {error}; still answering from iteration {self.iteration}")

    def answer(self, request: Request) -> dict[str, Any]:
        """The reply of the text server. Raises RefusedError if prompt and answer are too long.

        Unlike core_r0.8.0's it names the `iteration` that answered, because a server that follows may just have moved on.
        """
        gpt = self._gpt
        if gpt is None:
            raise RuntimeError("no checkpoint is loaded")
        start = [gpt.tokenizer.eod] if request.add_bos else []
        prompts = [[*start, *gpt.tokenizer.tokenize(prompt)] for prompt in request.prompts]
        length = max(map(len, prompts)) + request.tokens_to_generate
        if request.beam_width is not None:
            return _beams(gpt, prompts[0], length, request)
        _check_length(gpt, length, len(prompts))
        found = [
            generate(gpt, prompt, length if request.tokens_to_generate else 0, request.sampling)
            for prompt in prompts
        ]
        return {
            **_texts(gpt, found),
            "iteration": self.iteration,
            "logprobs": [gpt.score(tokens) for tokens in found] if request.logprobs else None,
        }


def _check_length(gpt: Gpt, length: int, batch: int) -> None:
    if length > gpt.shape.max_position_embeddings:
        raise RefusedError("Length of prompt + tokens_to_generate longer than allowed")
    if batch * length > MAX_TOKENS_TO_OOM:
        raise RefusedError(f"Too many tokens.  {batch * length} is greater than {MAX_TOKENS_TO_OOM}")


def _beams(gpt: Gpt, prompt: list[int], length: int, request: Request) -> dict[str, Any]:
    width = request.beam_width or 1
    length = min(length, gpt.shape.max_position_embeddings)
    if len(prompt) >= length:
        raise RefusedError("context length + tokens_to_generate too large")
    _check_length(gpt, length, width)
    stop = gpt.tokenizer.eod if request.stop_token is None else request.stop_token
    found = beam_search(gpt, prompt, length, width, stop, request.length_penalty)
    return {**_texts(gpt, [tokens for _, tokens in found]), "scores": [score for score, _ in found]}


def _texts(gpt: Gpt, found: list[list[int]]) -> dict[str, Any]:
    return {
        "text": [gpt.tokenizer.detokenize(tokens) for tokens in found],
        "segments": [[gpt.tokenizer.detokenize([token]) for token in tokens] for tokens in found],
    }
