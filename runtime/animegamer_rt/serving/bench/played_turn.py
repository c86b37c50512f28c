"""One turn as a client saw it: when each event came, and the seconds of the engines by the server's count.

Knows events of a turn; nothing of sockets. Times are of `time.perf_counter`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from animegamer_rt.serving.wire import Message

ENGINES = ("reader", "predictor", "denoiser", "vae")
"""Stages that run a network. Older servers do not tell the reader's seconds."""


@dataclass(slots=True)
class TurnTiming:
    """Filled event by event; complete once `done_at` is set. bytes: of the frames or the clip."""

    asked_at: float
    state_at: float = 0.0
    denoised_at: float = 0.0
    first_picture_at: float = 0.0
    last_picture_at: float = 0.0
    done_at: float = 0.0
    bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    def note(self, message: Message, at: float) -> None:
        """Add an event and the time when it came."""
        if message.type == "state":
            self.state_at = at
        elif message.type == "progress":
            self.denoised_at = at
        elif message.type in ("frame", "clip"):
            self.first_picture_at = self.first_picture_at or at
            self.last_picture_at = at
            self.bytes += len(message.buffers[0])
        elif message.type == "done":
            self.done_at, self.seconds = at, message.fields["seconds"]

    @property
    def turn_s(self) -> float:
        """From the request to `done`."""
        return self.done_at - self.asked_at

    @property
    def engines_s(self) -> float:
        """Seconds of reader, predictor, denoiser and vae."""
        return sum(self.seconds.get(stage, 0.0) for stage in ENGINES)

    @property
    def overhead_s(self) -> float:
        """Everything but the engines."""
        return self.turn_s - self.engines_s

    @property
    def outside_s(self) -> float:
        """Seconds outside the worker's turn: the server, the queue, the store's transaction, the last message."""
        return self.turn_s - self.seconds["total"]

    @property
    def state_s(self) -> float:
        """From the request to the game state."""
        return self.state_at - self.asked_at

    @property
    def state_overhead_s(self) -> float:
        """The same without the reader and the predictor."""
        return self.state_s - self.seconds.get("reader", 0.0) - self.seconds["predictor"]

    @property
    def first_frame_s(self) -> float:
        """From the request to the first frame."""
        return self.first_picture_at - self.asked_at

    @property
    def clip_s(self) -> float:
        """From the end of denoising to the last picture: decoding, encoding and transfer, one over the other."""
        return self.last_picture_at - self.denoised_at
