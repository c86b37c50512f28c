"""Random and mutated messages at both codecs: only their own ProtocolError comes out, and the two agree."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import golden_messages as golden
import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from animegamer_client import codec as client_codec
from animegamer_client import errors as client_errors
from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.wire import codec

MUTATED = 100_000
SEEDS = [golden.frames(vector) for vector in golden.MESSAGES]
HEADERS = [msgpack.unpackb(frames[1]) for frames in SEEDS]
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0.0, -1.5, float("nan"), float("inf"), 1e308,
    "", "a", "a" * 65, "\x00", "\U0001f600" * 70, b"", b"bytes", [], [[]], [None] * 300, {}, {"a": {"b": {}}},
    msgpack.ExtType(5, b"x"), msgpack.Timestamp(1, 2),
)  # fmt: skip


def throw(frames: Sequence[bytes], limits: codec.Limits) -> str:
    """Both codecs read the same frames; returns what came of it. Anything but a ProtocolError fails the test."""
    ours: codec.Message | None = None
    try:
        ours = codec.decode(frames, limits)
        outcome = "read"
    except ProtocolError as error:
        outcome = error.code
    try:
        theirs = client_codec.decode(frames)
    except client_errors.ProtocolError as error:
        assert outcome == error.code or limits is codec.CLIENT_LIMITS, (outcome, error, list(frames))
        return outcome
    if ours is not None:
        assert golden.header(theirs) | {"fields": 0} == golden.header(ours) | {"fields": 0}
        assert theirs.fields.keys() >= ours.fields.keys() and theirs.buffers == ours.buffers
    else:
        assert limits is codec.CLIENT_LIMITS or outcome in ("unknown_type", "missing_field", "bad_field")
    return outcome


def flip_bits(dice: random.Random, frames: list[bytes]) -> None:
    place = dice.randrange(len(frames))
    data = bytearray(frames[place])
    for _ in range(min(len(data), dice.randint(1, 4))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    frames[place] = bytes(data)


def cut(dice: random.Random, frames: list[bytes]) -> None:
    place = dice.randrange(len(frames))
    start = dice.randint(0, len(frames[place]))
    frames[place] = frames[place][:start] + frames[place][dice.randint(start, len(frames[place])) :]


def insert(dice: random.Random, frames: list[bytes]) -> None:
    place = dice.randrange(len(frames))
    start = dice.randint(0, len(frames[place]))
    frames[place] = frames[place][:start] + dice.randbytes(dice.randint(1, 20)) + frames[place][start:]


def declare_much(dice: random.Random, frames: list[bytes]) -> None:
    start = dice.randrange(len(frames[1]))
    claim = bytes([dice.choice(b"\xdb\xc6\xdd\xdf\xc9")]) + struct.pack(">I", dice.choice((2**30, 2**32 - 1, 70_000)))
    frames[1] = frames[1][:start] + claim + frames[1][start + dice.randint(0, 6) :]


def splice(dice: random.Random, frames: list[bytes]) -> None:
    other = dice.choice(SEEDS)[1]
    frames[1] = frames[1][: dice.randrange(len(frames[1]))] + other[dice.randrange(len(other)) :]


def move_frames(dice: random.Random, frames: list[bytes]) -> None:
    dice.choice(
        (
            lambda: frames.pop(dice.randrange(len(frames))),
            lambda: frames.insert(dice.randint(0, len(frames)), dice.randbytes(dice.randint(0, 30))),
            lambda: dice.shuffle(frames),
            lambda: frames.extend([b""] * dice.randint(1, 300)),
        )
    )()


def change_values(dice: random.Random, frames: list[bytes]) -> None:
    header = msgpack.unpackb(frames[1])
    at = header if dice.random() < 0.3 else header.setdefault("fields", {})
    inner = [value for value in at.values() if isinstance(value, dict)]
    if inner and dice.random() < 0.3:
        at = dice.choice(inner)
    for _ in range(dice.randint(1, 2)):
        key = dice.choice([*at, "turn", "seq", "id", "extra"])
        if dice.random() < 0.25:
            at.pop(key, None)
        else:
            at[key] = dice.choice(ODD_VALUES)
    frames[1] = msgpack.packb(header)


def borrow_fields(dice: random.Random, frames: list[bytes]) -> None:
    header, other = msgpack.unpackb(frames[1]), dice.choice(HEADERS)
    header["fields"] = {**header.get("fields", {}), **other.get("fields", {})}
    header["type"] = dice.choice((header["type"], other["type"]))
    frames[1] = msgpack.packb(header)


def anything(dice: random.Random, frames: list[bytes]) -> None:
    frames[1:] = [dice.randbytes(dice.randint(0, 200)) for _ in range(dice.randint(0, 3))]


MUTATIONS: tuple[Callable[[random.Random, list[bytes]], object], ...] = (
    flip_bits, cut, insert, declare_much, splice, move_frames, change_values, change_values, borrow_fields, anything
)  # fmt: skip


def test_a_hundred_thousand_mutated_messages_are_read_or_refused() -> None:
    dice = random.Random(20261122)
    outcomes: Counter[str] = Counter()
    for number in range(MUTATED):
        frames = list(dice.choice(SEEDS))
        dice.choice(MUTATIONS)(dice, frames)
        outcomes[throw(frames, codec.CLIENT_LIMITS if number % 2 else codec.SERVER_LIMITS)] += 1
    assert sum(outcomes.values()) == MUTATED
    # The mutations reach every layer, not only the first check.
    expected = {"read", "protocol", "version", "unknown_type", "missing_field", "bad_field", "too_large"}
    assert {outcome for outcome, count in outcomes.items() if count > MUTATED // 500} == expected


_LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
_TYPES = st.sampled_from(sorted({header["type"] for header in HEADERS})) | _VALUES
_KEYS = st.sampled_from(("id", "parent", "session", "turn", "seq"))
_HEADERS = st.builds(
    lambda type, keys, fields: {"type": type, **keys, "fields": fields},
    _TYPES,
    st.dictionaries(_KEYS, _VALUES),
    st.dictionaries(st.sampled_from(("token", "turn", "turn_id", "versions", "character", "codec")), _VALUES) | _VALUES,
)


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(_HEADERS | _VALUES, st.lists(st.binary(max_size=20), max_size=2), st.sampled_from(("client", "server")))
def test_any_header_that_msgpack_can_hold_is_read_or_refused(header: Any, buffers: list[bytes], sender: str) -> None:
    limits = codec.CLIENT_LIMITS if sender == "client" else codec.SERVER_LIMITS
    throw([codec.FIRST_FRAME, msgpack.packb(header), *buffers], limits)
