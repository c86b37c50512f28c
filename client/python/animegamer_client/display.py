"""Which picture to show now: clips at their own rate, held, looped or played back and forth, faded into each other.

Pure logic: pictures and a clock go in, what to draw comes out. client/vectors/display.json says what every client does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")
MOST_CLIPS = 2
"""The clip that is shown and the one after it: when a third begins, the first is cut short."""


class Mode(Enum):
    """What a clip does when it was played once. HOLD gives up each picture as it passes; the others keep the clip."""

    HOLD = "hold"
    LOOP = "loop"
    PING_PONG = "ping-pong"


@dataclass(frozen=True, slots=True)
class Shown(Generic[T]):
    """What to draw. picture: None before the first; next: drawn over it with the weight `blend`, 0..1, or None.

    turn, index: of the newer picture; 0 and -1 before the first. ended: a turn whose clip was played once, or was cut
    short, since the last call; 0: none.
    """

    picture: T | None
    next: T | None
    blend: float
    turn: int
    index: int
    ended: int


@dataclass(slots=True)
class _Clip(Generic[T]):
    """first: index of the first picture that came. time_s: None before it is shown. keeps: what has passed."""

    turn: int
    first: int
    count: int
    pictures: list[T] = field(default_factory=list)
    passed: int = 0
    time_s: float | None = None
    shown: int = 0
    keeps: bool = False
    ended: bool = False

    @property
    def arrived(self) -> int:
        """The index that the next picture has."""
        return self.first + len(self.pictures)


class Display(Generic[T]):
    """Plays clips on one thread; times are seconds of any clock that does not jump.

    A clip begins when the one before was played once; with `at_once`, as soon as its first picture is there. While its
    next picture has not arrived, its time stands still. mode: of the clips that begin from now on.
    rest_s: how long the last picture stays before the clip comes again. fade_s: seconds in which a clip is faded into
    the next; 0: a cut. paused: time stands still. release: gets each picture that will not be shown again.
    Raises ValueError if fps is not more than 0.
    """

    def __init__(self, fps: float, release: Callable[[T], None] = lambda picture: None) -> None:
        if not fps > 0.0:
            raise ValueError(f"fps is {fps}; expected pictures in a second, more than 0, as the server's welcome says")
        self.fps, self.mode, self.rest_s, self.fade_s = fps, Mode.HOLD, 0.0, 0.0
        self.at_once, self.paused = False, False
        self._release = release
        self._clips: list[_Clip[T]] = []
        self._under: T | None = None
        self._fading_s = 0.0
        self._now: float | None = None
        self._ended = 0

    @property
    def playing(self) -> bool:
        """Whether a clip has not been played once."""
        return len(self._clips) > 1 or (bool(self._clips) and not self._clips[0].ended)

    def add(self, picture: T, turn: int, index: int, count: int) -> None:
        """Take the picture `index` of `count` of a turn. Another turn, or another order, begins another clip."""
        newest = self._clips[-1] if self._clips else None
        if newest is None or newest.turn != turn or index != newest.arrived or index >= newest.count:
            self.end()
            if len(self._clips) == MOST_CLIPS:
                self._leave()
            newest = _Clip(turn, index, count)
            self._clips.append(newest)
        newest.pictures.append(picture)

    def end(self) -> None:
        """No more pictures come for the newest clip: its turn is done or was cancelled."""
        if self._clips:
            self._clips[-1].count = self._clips[-1].arrived

    def again(self) -> None:
        """Play the clip from its beginning, if it keeps its pictures."""
        if self._clips and self._clips[0].keeps:
            self._clips[0].time_s, self._clips[0].ended = self._clips[0].first / self.fps, False

    def clear(self) -> None:
        """Forget all pictures."""
        while self._clips:
            self._leave()
        self._give_up_under()
        self._ended = 0

    def advance(self, now: float) -> Shown[T]:
        """What to draw at this time."""
        passed_s = 0.0 if self._now is None or self.paused else max(0.0, now - self._now)
        self._now = now
        self._fading_s += passed_s
        if self._clips and self._clips[0].time_s is not None and not self.paused:
            self._play(self._clips[0], passed_s)
        if not self._clips:
            return Shown(None, None, 0.0, 0, -1, self._take_ended())
        clip = self._clips[0]
        if clip.time_s is None:
            clip.time_s, clip.keeps, self._fading_s = clip.first / self.fps, self.mode is not Mode.HOLD, 0.0
        clip.shown = max(clip.first, min(self._position(clip, clip.time_s), clip.arrived - 1))
        if not clip.keeps:
            self._give_up(clip, clip.shown - clip.first)
        picture = clip.pictures[clip.shown - clip.first]
        blend = 1.0 if self.fade_s <= 0.0 else self._fading_s / self.fade_s
        if blend >= 1.0:
            self._give_up_under()
        if self._under is None:
            return Shown(picture, None, 0.0, clip.turn, clip.shown, self._take_ended())
        return Shown(self._under, picture, blend, clip.turn, clip.shown, self._take_ended())

    def _play(self, clip: _Clip[T], passed_s: float) -> None:
        """Let time pass for the clip; leave it if the next one begins."""
        assert clip.time_s is not None
        clip.time_s += passed_s
        if clip.arrived < clip.count:
            clip.time_s = min(clip.time_s, clip.arrived / self.fps)
        elif clip.time_s >= clip.count / self.fps and not clip.ended:
            clip.ended, self._ended = True, clip.turn
        if len(self._clips) > 1 and (clip.ended or self.at_once):
            self._leave()

    def _position(self, clip: _Clip[T], time_s: float) -> int:
        once_s, last = clip.count / self.fps, clip.count - 1
        if time_s >= once_s and (self.mode is Mode.HOLD or not clip.keeps):
            return last
        back = max(0, clip.count - 2) if self.mode is Mode.PING_PONG else 0
        time_s %= once_s + self.rest_s + back / self.fps
        if time_s < once_s:
            return int(time_s * self.fps)
        if time_s < once_s + self.rest_s:
            return last
        return last - 1 - int((time_s - once_s - self.rest_s) * self.fps)

    def _leave(self) -> None:
        """Drop the first clip, except for the picture that is shown, which the next one is drawn over."""
        clip = self._clips.pop(0)
        if clip.time_s is not None:
            if not clip.ended:
                self._ended = clip.turn
            self._give_up_under()
            self._under = clip.pictures[clip.shown - clip.first]
            self._give_up(clip, clip.shown - clip.first)
            clip.passed += 1
        self._give_up(clip, len(clip.pictures))

    def _give_up(self, clip: _Clip[T], before: int) -> None:
        while clip.passed < before:
            self._release(clip.pictures[clip.passed])
            clip.passed += 1

    def _give_up_under(self) -> None:
        if self._under is not None:
            self._release(self._under)
        self._under = None

    def _take_ended(self) -> int:
        ended, self._ended = self._ended, 0
        return ended
