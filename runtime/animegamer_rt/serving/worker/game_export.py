"""Renders a whole game into a folder, turn by turn from the first, as `animegamer-rt play` would have written it.

Instructions, seeds and versions of the noise suffice: a replay is exact.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

from animegamer_rt.api import ClipBuilder
from animegamer_rt.errors import OutputError, SessionError, StoreError
from animegamer_rt.events import Progress
from animegamer_rt.play.game_folder import GameFolder
from animegamer_rt.serving.wire import Message
from animegamer_rt.serving.wire.worker_messages import ExportFinished, ExportJob
from animegamer_rt.session import Session
from animegamer_rt.stages.prompt import HistoryTurn
from animegamer_rt.state.game import NEUTRAL
from animegamer_rt.state.instruction import Instruction

from .precision_retry import PrecisionRetry
from .replies import ReplyBuilder
from .turn import read_shot


def render_game(retry: PrecisionRetry, message: Message) -> Generator[Message, None, None]:
    """Yields `progress` after every denoise step (its `step` counts whole turns), then `finished`.

    A turn that was retried in a higher precision is rendered the same way.
    Raises StoreError if the folder cannot be written, AnimeGamerError if the game cannot be rendered.
    """
    try:
        yield from _render(retry, message)
    except (OutputError, OSError) as error:
        found = error.text if isinstance(error, OutputError) else error.strerror or str(error)
        do = "tell the operator to free disk space or make the state folder writable"
        raise StoreError("the export cannot be written", found=found, do=do) from error


def _render(retry: PrecisionRetry, message: Message) -> Generator[Message, None, None]:
    pipeline = retry.pipeline
    job, replies = ExportJob.from_message(message), ReplyBuilder(message)
    manifest, size, turns = pipeline.bundle.manifest, pipeline.bundle.manifest.geometry, len(job.history)
    if not len(job.seeds) == len(job.noise_versions) == turns:
        found = f"{len(job.seeds)} and {len(job.noise_versions)}"
        raise SessionError("the job needs one seed and one noise version per turn", found=found, expected=turns)
    session = Session.start(pipeline.bundle, job.seed, job.history_turns)
    start = None
    if job.start_text is not None and job.start_shot is not None:
        shot = read_shot(job.start_shot, (size.shot_tokens, size.shot_width))
        session.start_from(HistoryTurn(job.start_text, NEUTRAL, shot), job.start_scene)
        start = {"caption": job.start_text}
    folder = GameFolder(Path(job.folder), manifest.name, pipeline.plan_name, job.seed, size.fps, start=start)
    files, started = [folder.game_path], time.perf_counter()

    def progress(written: int, begun: float = 0.0) -> Message:
        seconds_left = (time.perf_counter() - started) / (written + begun) * (turns - written - begun)
        return replies.progress(written, turns, seconds_left)

    noises = zip(job.seeds, job.noise_versions, strict=True)
    for turn, (record, noise) in enumerate(zip(job.history, noises, strict=True), 1):
        folder.check_free_space(size.frames * size.height * size.width * 3)
        (session.seed, session.noise_version), clip = noise, ClipBuilder()
        for event in retry.run_turn(session, Instruction(record.text), shown=record.scene):
            clip.add(event)
            if isinstance(event, Progress):
                yield progress(turn - 1, event.step / (event.steps + 1))
        files.append(folder.add(clip.build(record.text, size.fps), session.noise_version))
        yield progress(turn)
    if turns:
        files.append(folder.sheet_path)
    yield replies.to_server(ExportFinished(tuple(path.name for path in files)))
