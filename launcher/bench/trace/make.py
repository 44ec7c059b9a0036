"""The agentic trace from a seed: sessions that grow turn by turn over a shared prefix.

Each turn sends the whole conversation again plus a tool result, so most of a prompt is cached. With a common prefix
of S tokens and U new tokens a turn, turn k has S + kU tokens, so n turns have a mean input of S + U(n + 1)/2 and a hit
rate of 1 - U/mean: U and n follow from the wanted mean and hit rate. Lengths are drawn, blocks are whole and sessions
end at the context limit, all of which moves the means; a few rounds of correction bring them back.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from dataclasses import dataclass

from .model import Row, Shape

GROWTH_SIGMA = 0.8
"""Of the lognormal growth of a turn: tool results are mostly short and sometimes a whole file."""
OUTPUT_SIGMA = 0.6
"""Of the lognormal output length."""
ROUNDS = 16
CLOSE = 0.005
"""Relative error of mean input and of the miss rate at which correcting stops."""


MOST_REQUESTS = 1_000_000
"""Hundred times the page's own trace, and days on any deployment here."""
MOST_IDS = 100_000_000
"""Hash ids of all prompts: some 3 GB of memory and a minute; 100,000 requests of 64K tokens have 12.8 million."""
IN_MEMORY = "a trace is made in memory"


@dataclass(frozen=True, slots=True)
class _Knobs:
    growth: float
    """Mean new tokens of a turn."""
    turns: float
    """Mean turns of a session, before the context limit ends it."""


@dataclass(frozen=True, slots=True)
class _Turn:
    session: int
    length: int
    """Input tokens."""
    output: int
    held: int
    """Of the input, tokens in whole blocks that were sent before."""


def make(shape: Shape) -> list[Row]:
    """The rows of a trace; the same shape gives the same rows on every machine and Python.

    Raises ValueError where the shape cannot be had (no room for growth below the limit).
    """
    check(shape)
    miss = 1 - shape.hit
    growth = max(miss * shape.isl - shape.block / 2, 1.0)
    knobs = _Knobs(growth, max(2 * (shape.isl - shape.shared_tokens) / (miss * shape.isl) - 1, 1.0))
    best: list[_Turn] = []
    least = math.inf
    for _ in range(ROUNDS):
        turns = _draw(shape, knobs)
        total = sum(turn.length for turn in turns)
        mean = total / len(turns)
        missed = 1 - sum(turn.held for turn in turns) / total
        error = max(abs(mean / shape.isl - 1), abs(missed / miss - 1))
        if error < least:
            least, best = error, turns
        if error < CLOSE:
            break
        # New tokens a turn follow the growth. The mean follows growth and turns, and less than in proportion, because
        # the context limit ends the long sessions: hence the square.
        growth = min(max(knobs.growth * (miss * shape.isl) / (missed * mean), 1.0), float(shape.limit))
        longer = (shape.isl / mean) ** 2 * knobs.growth / growth
        knobs = _Knobs(growth, min(max(knobs.turns * longer, 1.0), 1000.0))
    return _name(shape, best)


def check(shape: Shape) -> None:
    """Raise ValueError where the shape cannot be had, or is too large to be made."""
    if not 0 < shape.hit < 1:
        raise ValueError(f"a hit rate of {shape.hit:g} is not between 0 and 1")
    if shape.requests < 1 or shape.active < 1 or shape.osl < 1 or shape.block < 1:
        raise ValueError("requests, active sessions, output length and block are at least 1")
    if shape.limit < 4:
        raise ValueError(f"a context of {shape.limit} tokens has no room for a session that grows")
    check_size(shape.requests, shape.isl, shape.block)
    if shape.shared_tokens >= shape.isl:
        raise ValueError(
            f"a shared prefix of {shape.shared_tokens} tokens leaves nothing of a mean input of {shape.isl}"
        )
    if (1 - shape.hit) * shape.isl <= shape.block / 2:
        raise ValueError(
            f"{shape.isl} tokens at {shape.hit:.0%} hits leave {(1 - shape.hit) * shape.isl:.0f} new tokens a turn, "
            f"less than half a block of {shape.block}"
        )
    if not shape.over_limit and shape.isl + shape.osl > shape.limit:
        raise ValueError(f"a mean of {shape.isl} + {shape.osl} tokens is above the limit of {shape.limit}")


def check_size(requests: int, isl: int, block: int) -> None:
    """Raise ValueError where so many requests of so many tokens do not fit into memory."""
    if requests > MOST_REQUESTS:
        raise ValueError(f"{requests} requests are more than the most, {MOST_REQUESTS:,}: {IN_MEMORY}")
    ids = requests * -(-isl // block)
    if ids > MOST_IDS:
        raise ValueError(
            f"{requests} requests of {isl} tokens in blocks of {block} have {ids} hash ids, more than the most, "
            f"{MOST_IDS:,}: {IN_MEMORY}"
        )


def _draw(shape: Shape, knobs: _Knobs) -> list[_Turn]:
    """Lengths of all turns, in the order in which they are sent: each session at work in turn."""
    dice = random.Random(shape.seed)
    sessions = 0

    def lane() -> _Lane:
        nonlocal sessions
        sessions += 1
        return _Lane(sessions - 1, shape, knobs, dice)

    lanes = [lane() for _ in range(min(shape.active, shape.requests))]
    drawn: list[tuple[float, _Turn]] = []
    round_start = 0.0
    while len(drawn) < shape.requests:
        for place, current in enumerate(lanes[: shape.requests - len(drawn)]):
            # In strict order a round-robin router would send each session to one worker by accident. Half a round of
            # disorder leaves about half a round between two turns of a session: one is answered before the next.
            drawn.append((round_start + place + dice.random() * len(lanes) / 2, current.turn()))
            if current.over:
                lanes[place] = lane()
        round_start += len(lanes)
    turns = [turn for _, turn in sorted(drawn, key=lambda pair: pair[0])]
    # Nobody has sent the shared prefix before the first.
    turns[0] = dataclasses.replace(turns[0], held=0)
    return turns


class _Lane:
    """One session at work: how long its conversation is by now."""

    def __init__(self, session: int, shape: Shape, knobs: _Knobs, dice: random.Random) -> None:
        self._session, self._shape, self._knobs, self._dice = session, shape, knobs, dice
        # Uniform within half of the mean either way: the sessions drift apart.
        self._left = max(1, round(knobs.turns * (0.5 + dice.random())))
        self._before = shape.shared_tokens
        self._length = shape.shared_tokens + self._grown(0)
        self.over = False

    def turn(self) -> _Turn:
        """The next request."""
        shape = self._shape
        output = _lognormal(self._dice, shape.osl, OUTPUT_SIGMA)
        if not shape.over_limit:
            output = min(output, shape.limit - self._length)
        turn = _Turn(self._session, self._length, output, self._before // shape.block * shape.block)
        self._before = self._length
        self._length += self._grown(output)
        self._left -= 1
        room = shape.over_limit or self._length + 2 * shape.osl <= shape.limit
        self.over = self._left <= 0 or not room
        return turn

    def _grown(self, output: int) -> int:
        """New tokens of the next prompt: the last answer and what came back for it."""
        grown = max(_lognormal(self._dice, self._knobs.growth, GROWTH_SIGMA), output + 1)
        # One tool result never fills the context by itself.
        return min(grown, self._shape.limit // 4)


def _name(shape: Shape, turns: list[_Turn]) -> list[Row]:
    """Give each block its id, once the lengths are settled."""
    shared = list(range(shape.shared_tokens // shape.block))
    ids = itertools.count(len(shared))
    blocks: dict[int, list[int]] = {}
    rows = []
    for turn in turns:
        own = blocks.setdefault(turn.session, shared.copy())
        whole, rest = divmod(turn.length, shape.block)
        own.extend(itertools.islice(ids, whole - len(own)))
        # What fills the rest of the last block comes with the next turn: a block of its own, never hit.
        names = [*own, next(ids)] if rest else own
        rows.append(Row(turn.length, turn.output, tuple(names), f"s{turn.session:05d}"))
    return rows


def _lognormal(dice: random.Random, mean: float, sigma: float) -> int:
    return max(1, round(dice.lognormvariate(math.log(max(mean, 1.0)) - sigma**2 / 2, sigma)))
