"""The wire: golden bytes both ways, what is refused with which code, what it costs in memory, random messages."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import golden_messages as golden
import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from animegamer_client import codec as client_codec
from animegamer_client import errors as client_errors
from animegamer_rt.errors import AnimeGamerError, ConfigError, OutputError, ProtocolError
from animegamer_rt.serving.wire import codec
from animegamer_rt.serving.wire.client_errors import client_text, without_folders
from animegamer_rt.serving.wire.codec import CLIENT_LIMITS, SERVER_LIMITS, Limits, Message, decode, encode
from animegamer_rt.serving.wire.schema import CODES, MAX_LISTED, MESSAGES
from animegamer_rt.state.game import STRENGTHS

LIMITS = {"client": CLIENT_LIMITS, "server": SERVER_LIMITS}


def test_golden_messages_are_read_and_written_to_the_byte() -> None:
    for vector in golden.MESSAGES:
        frames = golden.frames(vector)
        message = decode(frames, LIMITS[vector["sender"]])
        assert golden.header(message) == vector["header"], vector["name"]
        assert list(message.buffers) == frames[2:], vector["name"]
        assert not vector["canonical"] or encode(message) == frames, vector["name"]


@pytest.mark.parametrize("layer", ["frames", "fields"])
def test_broken_messages_are_refused_with_their_code(layer: str) -> None:
    for vector in golden.REFUSED:
        if vector["layer"] == layer:
            with pytest.raises(ProtocolError) as refusal:
                decode(golden.frames(vector), LIMITS[vector["sender"]])
            assert refusal.value.code == vector["code"] in CODES, vector["name"]


def test_every_kind_of_message_has_a_golden_one() -> None:
    there = {(vector["sender"], vector["header"]["type"]) for vector in golden.MESSAGES}
    assert there == {(kind.sender, kind.type) for kinds in MESSAGES.values() for kind in kinds.values()}


def test_buffers_are_not_copied() -> None:
    pixels = bytearray(16)
    fields = next(vector for vector in golden.MESSAGES if vector["name"] == "frame, raw")["header"]["fields"]
    frames = encode(Message("frame", fields, session="s", turn=1, seq=3, buffers=(memoryview(pixels),)))
    received = decode(frames, SERVER_LIMITS).buffers[0]
    pixels[5] = 77
    assert received[5] == 77


def test_a_game_without_end_fits_a_job() -> None:
    log = [["Character: Mia; Motion: gently wave; Background: day town.", 2, 1, 0, -1]] * 100_000
    job = Message("job", {"log": log}, buffers=(bytes(1000),) * 16)
    assert decode(encode(job), codec.WORKER_LIMITS, check=False) == job


def test_a_full_page_of_the_longest_turns_fits_its_header() -> None:
    strengths = dict.fromkeys(STRENGTHS, -5)
    turn = {"turn": 2**62, "turn_id": "\U0001f600" * 64, "instruction": "\U0001f600" * 500, **strengths}
    page = Message("listed", {"turns": [turn] * MAX_LISTED, "more": True}, session="s")
    assert decode(encode(page), SERVER_LIMITS) == page
    with pytest.raises(ProtocolError, match="at most 100 items"):
        decode(encode(Message("listed", {"turns": [turn] * 101, "more": True}, session="s")), SERVER_LIMITS)


@pytest.mark.parametrize("limits", [CLIENT_LIMITS, SERVER_LIMITS])
def test_declared_sizes_take_no_memory(limits: Limits) -> None:
    for vector in golden.REFUSED:
        if "declared" in vector["name"] or "nested" in vector["name"]:
            frames = golden.frames(vector)
            tracemalloc.start()
            try:
                with pytest.raises(ProtocolError):
                    decode(frames, limits)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak <= 8 * limits.items * 1024 + 2**20, vector["name"]


def test_a_client_is_told_what_is_wrong_and_no_path(tmp_path: Any) -> None:
    error: AnimeGamerError = OutputError("cannot be written", where=tmp_path / "state", found="no space left on device")
    assert client_text(error) == "cannot be written; found no space left on device"
    error = ConfigError("not a table", where=f"{tmp_path}/manifest.json: sizes of vae", found=r"C:\games\pocket\x.onnx")
    assert client_text(error) == "manifest.json: sizes of vae: not a table; found x.onnx"
    for text in ("tcp://127.0.0.1:5570", "3/4 of it, and/or more", "1.2 MiB/s", "ask http://example.org/a/b"):
        assert without_folders(text) == text


def test_the_made_parts_are_current() -> None:
    command = [sys.executable, str(golden.ROOT / "client" / "vectors" / "make.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 0, found.stderr


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
