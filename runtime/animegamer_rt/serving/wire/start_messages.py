"""What the server and its worker say of a game that starts from a picture: the job, and the turn 0 that answers it.

Beside `worker_messages`, which has all other jobs; as there, these messages have no version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from animegamer_rt.state.scene import Scene

from .codec import Buffer, Message
from .worker_messages import START


@dataclass(frozen=True, slots=True)
class StartJob:
    """Make turn 0 of a game of the picture in the message's buffer. motion: as `open` has it."""

    motion: str
    history_turns: int

    @classmethod
    def from_message(cls, message: Message) -> StartJob:
        """The inverse of `to_fields`."""
        return cls(str(message.fields["motion"]), int(message.fields["history_turns"]))

    def to_fields(self) -> dict[str, Any]:
        """The fields of `job`."""
        return {"kind": START, "motion": self.motion, "history_turns": self.history_turns}


@dataclass(frozen=True, slots=True)
class GameStarted:
    """Turn 0: its text in prompts, its shot (fp16 [226, D]), and the scene in the picture with a line that says it."""

    TYPE: ClassVar[str] = "finished"
    text: str
    shot: bytes
    scene: Scene | None = None
    description: str = ""

    @classmethod
    def from_message(cls, message: Message) -> GameStarted:
        """The inverse of `to_fields` and `buffers`."""
        fields = message.fields
        scene = None if fields["scene"] is None else Scene.from_json(fields["scene"])
        return cls(fields["text"], bytes(message.buffers[0]), scene, fields["description"])

    def to_fields(self) -> dict[str, Any]:
        """Its fields."""
        scene = None if self.scene is None else self.scene.to_json()
        return {"text": self.text, "scene": scene, "description": self.description}

    def buffers(self) -> tuple[Buffer, ...]:
        """The shot."""
        return (self.shot,)
