"""Renders one turn of a game into a folder. Together the turns make what `animegamer-rt play` would have written.

Instructions, seeds and versions of the noise suffice: a replay is exact.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from pathlib import Path

from animegamer_rt.api import ClipBuilder
from animegamer_rt.errors import OutputError, StoreError
from animegamer_rt.events import Progress
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.play.game_folder import GameFolder
from animegamer_rt.serving.wire.codec import Message
from animegamer_rt.serving.wire.worker_messages import ExportFinished, ExportJob, PartFinished, PredictedShots
from animegamer_rt.state.game import Instruction

from .replies import ReplyBuilder
from .turn import new_shots, prepare_turn


def export_turn(pipeline: Pipeline, message: Message, heartbeat: Callable[[], None]) -> Generator[Message, None, None]:
    """Yields `progress` after every denoise step (its `step` counts whole turns), then the shots for the next turn.

    heartbeat: called before each earlier turn that is predicted again; it may raise to stop.
    Raises StoreError if the folder cannot be written, AnimeGamerError if the turn cannot be rendered.
    """
    try:
        yield from _render(pipeline, message, heartbeat)
    except (OutputError, OSError) as error:
        found = error.text if isinstance(error, OutputError) else error.strerror or str(error)
        do = "tell the operator to free disk space or make the state folder writable"
        raise StoreError("the export cannot be written", found=found, do=do) from error


def _render(pipeline: Pipeline, message: Message, heartbeat: Callable[[], None]) -> Generator[Message, None, None]:
    turn, started = message.turn or 1, time.perf_counter()
    job, replies = ExportJob.from_message(message), ReplyBuilder(message)
    manifest, size = pipeline.bundle.manifest, pipeline.bundle.manifest.geometry
    start = None if job.start_text is None else {"caption": job.start_text}
    Path(job.folder).mkdir(exist_ok=True)  # not its parents, if the state folder was moved away
    folder = GameFolder(Path(job.folder), manifest.name, pipeline.plan_name, job.game_seed, size.fps, start=start)
    if turn > 1:
        folder.go_on(turn - 1)

    def progress(done: float) -> Message:
        seconds_left = (time.perf_counter() - started) / done * (job.turns - turn + 1 - done)
        return replies.progress(turn - 1 + int(done), job.turns, seconds_left)

    if job.turns:
        prepared, clip = prepare_turn(pipeline, message, heartbeat), ClipBuilder()
        folder.check_free_space(size.frames * size.height * size.width * 3)
        for event in pipeline.run_turn(prepared.session, Instruction(job.instruction), shown=job.shown):
            clip.add(event)
            if isinstance(event, Progress):
                yield progress(event.step / (event.steps + 1))
        folder.add(clip.build(job.instruction, size.fps), job.noise_version)
        yield progress(1)
        yield replies.to_server(PredictedShots(new_shots(prepared)))
    yield replies.to_server(PartFinished() if turn < job.turns else ExportFinished(tuple(folder.files)))
