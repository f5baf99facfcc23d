"""A small byte-pair tokenizer, learnt from the training text: 256 bytes, their merges, and one end of document.

Words are split as in GPT-2; merges are learnt as in Sennrich et al., 2016 (https://arxiv.org/abs/1508.07909).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

Pair: TypeAlias = tuple[int, int]

BYTES = 256
END_TEXT = "<|endoftext|>"
WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
SAMPLE = 2**20  # characters to learn from; more does not change 255 merges much


def learn_merges(texts: Iterable[str], count: int) -> list[Pair]:
    """The `count` most frequent merges, or fewer if the text has no more pairs. The same texts give the same merges."""
    words = _counted_words(texts)
    spelled = [list(word.encode("utf-8", "replace")) for word in words]
    often = list(words.values())
    pairs: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for index, word in enumerate(spelled):
        for pair in itertools.pairwise(word):
            pairs[pair] += often[index]
            where[pair].add(index)
    merges: list[Pair] = []
    while len(merges) < count and pairs:
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        if pairs[best] < 2:
            break
        for index in where.pop(best):
            before = spelled[index]
            after = merge(before, best, BYTES + len(merges))
            for pair in itertools.pairwise(before):
                pairs[pair] -= often[index]
            for pair in itertools.pairwise(after):
                pairs[pair] += often[index]
                where[pair].add(index)
            spelled[index] = after
        del pairs[best]
        merges.append(best)
    return merges


def _counted_words(texts: Iterable[str]) -> Counter[str]:
    words: Counter[str] = Counter()
    left = SAMPLE
    for text in texts:
        words.update(WORDS.findall(text[:left]))
        left -= len(text)
        if left <= 0:
            break
    return words


def merge(tokens: Sequence[int], pair: Pair, replacement: int) -> list[int]:
    """`tokens` with each occurrence of `pair`, from the left, as one token."""
    merged: list[int] = []
    position = 0
    while position < len(tokens):
        if tuple(tokens[position : position + 2]) == pair:
            merged.append(replacement)
            position += 2
        else:
            merged.append(tokens[position])
            position += 1
    return merged


class Tokenizer:
    """Converts text to ids and back. Ids: 0…255 are bytes, then one for each merge, and `eod`, the end of a document."""

    def __init__(self, merges: Iterable[Pair], size: int) -> None:
        """`size`: the number of ids before `eod`. Raises ValueError if bytes and merges do not fit."""
        self.merges = [(int(first), int(second)) for first, second in merges]
        if size < BYTES + len(self.merges):
            raise ValueError(f"a vocabulary of {size} has no room for {len(self.merges)} merges of bytes")
        self.eod = size
        self._rank = {pair: BYTES + index for index, pair in enumerate(self.merges)}
        self._bytes = [bytes([value]) for value in range(BYTES)]
        for first, second in self.merges:
            self._bytes.append(self._bytes[first] + self._bytes[second])
        self._known: dict[str, list[int]] = {}

    def tokenize(self, text: str) -> list[int]:
        """The ids of any text; lone surrogates become question marks."""
        return [token for word in WORDS.findall(text) for token in self._spell(word)]

    def _spell(self, word: str) -> list[int]:
        found = self._known.get(word)
        if found is None:
            found = list(word.encode("utf-8", "replace"))
            while len(found) > 1:
                pair = min(itertools.pairwise(found), key=lambda pair: self._rank.get(pair, self.eod))
                if pair not in self._rank:
                    break
                found = merge(found, pair, self._rank[pair])
            if len(word) <= 32:
                self._known[word] = found
        return found

    def detokenize(self, tokens: Iterable[int]) -> str:
        """Bytes that are no UTF-8 show as U+FFFD, `eod` as `<|endoftext|>`, ids without meaning as nothing."""
        return b"".join(self.piece(token) for token in tokens).decode("utf-8", "replace")

    def piece(self, token: int) -> bytes:
        """The bytes that `token` stands for; ids without meaning stand for none."""
        if token == self.eod:
            return END_TEXT.encode()
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""
