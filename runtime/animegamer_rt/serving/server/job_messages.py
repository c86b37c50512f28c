"""What the worker is told of a job: the seed, the history and the shots that it needs.

Knows the store and the worker's messages; nothing of when a job runs.
"""

from __future__ import annotations

from dataclasses import replace

from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.store import Store
from animegamer_rt.serving.wire import Message
from animegamer_rt.serving.wire.worker_messages import JOB, ExportJob, TurnJob
from animegamer_rt.state.turn_record import TurnRecord

from .jobs import Job, PictureOpening


def export_message(job: Job, store: Store) -> Message:
    """An export into the job's folder. Raises StoreError."""
    session = store.get(job.session)
    turns = store.turns(job.session, 1, session.turns)
    history = tuple(TurnRecord(turn.instruction, turn.game_state) for turn in turns)
    seeds = tuple(turn.seed for turn in turns)
    export = ExportJob(str(job.export_folder), session.seed, session.history_turns, history, seeds)
    start = store.start_of(job.session)
    if start is None:
        return Message(JOB, export.to_fields(), id=job.id, session=job.session)
    export = replace(export, start_text=start.text, start_scene=start.scene)
    return Message(JOB, export.to_fields(), id=job.id, session=job.session, buffers=(start.shot,))


def start_message(job: Job, opening: PictureOpening) -> Message:
    """The start of a game from a picture."""
    return Message(JOB, opening.job.to_fields(), id=job.id, session=job.session, buffers=(opening.picture,))


def turn_message(job: Job, store: Store, predict_again_s: float) -> Message:
    """A turn or a replay. If shots have to be predicted again, the job's deadline gets so long for each of them.

    Raises StoreError, or ProtocolError when the session went on without it.
    """
    session = store.get(job.session)
    assert job.turn is not None
    if job.kind == "turn" and job.turn != session.turns + 1:
        raise ProtocolError("the session went on without this turn", code="no_such_turn", found=f"turn {job.turn}")
    context = store.turn_context(job.session, job.turn)
    shot_turns = tuple(sorted(context.shots))
    if session.history_turns and len(shot_turns) < len(context.log):
        job.extend_deadline(len(context.log) * predict_again_s)
        job.predicts_again = True
    buffers, start = tuple(context.shots[number] for number in shot_turns), context.start
    if start is not None:
        shot_turns, buffers = (0, *shot_turns), (start.shot, *buffers)
    turn = TurnJob(
        job.instruction,
        job.seed,
        session.history_turns,
        context.character,
        omitted_turns=context.first,
        history=context.log,
        shot_turns=shot_turns,
        frames=job.frame_options,
        scene=context.scene,
        start_text=None if start is None else start.text,
    )
    return Message(JOB, turn.to_fields(), id=job.id, session=job.session, turn=job.turn, buffers=buffers)
