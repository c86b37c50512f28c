"""The tables, and the statements that upgrade them from each version to the next."""

from __future__ import annotations

SCRIPTS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE store (schema_version INTEGER NOT NULL)",
        "INSERT INTO store VALUES (0)",
        """
        CREATE TABLE sessions (
            key INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            token_sha256 TEXT NOT NULL UNIQUE,
            bundle_name TEXT NOT NULL,
            bundle_fingerprint TEXT NOT NULL,
            seed INTEGER NOT NULL,
            history_turns INTEGER NOT NULL,
            created REAL NOT NULL,
            used REAL NOT NULL,
            closed INTEGER NOT NULL DEFAULT 0
        )
        """,
        "CREATE INDEX sessions_by_use ON sessions (closed DESC, used)",
        """
        CREATE TABLE turns (
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            turn INTEGER NOT NULL,
            turn_id TEXT NOT NULL,
            instruction TEXT NOT NULL,
            seed INTEGER NOT NULL,
            motion_level INTEGER NOT NULL,
            social INTEGER NOT NULL,
            entertainment INTEGER NOT NULL,
            stamina INTEGER NOT NULL,
            character_stamina INTEGER NOT NULL,
            character_social INTEGER NOT NULL,
            character_entertainment INTEGER NOT NULL,
            seconds TEXT NOT NULL,
            PRIMARY KEY (session, turn),
            UNIQUE (session, turn_id)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE shots (
            session INTEGER NOT NULL,
            turn INTEGER NOT NULL,
            shot BLOB NOT NULL,
            PRIMARY KEY (session, turn),
            FOREIGN KEY (session, turn) REFERENCES turns ON DELETE CASCADE
        )
        """,
    ),
    # A turn is stored before it has ended, when its seconds are not known yet.
    ("ALTER TABLE turns DROP COLUMN seconds",),
    # JSON of `Scene`; NULL if no reader processed the instruction.
    ("ALTER TABLE turns ADD COLUMN scene TEXT",),
    # `Engines.identity` of the last turn's engines; NULL before the first turn, and in games of an earlier version.
    ("ALTER TABLE sessions ADD COLUMN engines TEXT",),
    # 0: stored but not confirmed, so its player got no `done`. All earlier turns were done.
    # boot: `boot_id` when the file was last opened, to notice that the machine was restarted.
    (
        "ALTER TABLE turns ADD COLUMN done INTEGER NOT NULL DEFAULT 1",
        "CREATE INDEX turns_not_done ON turns (session, turn) WHERE NOT done",
        "ALTER TABLE store ADD COLUMN boot TEXT",
    ),
    # Turn 0 of sessions that start from a picture. Its shot cannot be predicted again: it stays with its session.
    (
        """
        CREATE TABLE starts (
            session INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
            text TEXT NOT NULL,
            scene TEXT,
            shot BLOB NOT NULL
        )
        """,
    ),
    # Both unused. moved: not NULL in a session that went to another state folder; it counts as closed.
    ("ALTER TABLE sessions ADD COLUMN moved TEXT", "ALTER TABLE sessions ADD COLUMN arrived TEXT"),
    # `noise.VERSION` when the turn was played. All earlier ones have 1.
    ("ALTER TABLE turns ADD COLUMN noise_version INTEGER NOT NULL DEFAULT 1",),
    # Shots of earlier windows, from which later turns can be predicted again; `shots` has those of the newest window.
    (
        """
        CREATE TABLE checkpoints (
            session INTEGER NOT NULL,
            turn INTEGER NOT NULL,
            shot BLOB NOT NULL,
            PRIMARY KEY (session, turn),
            FOREIGN KEY (session, turn) REFERENCES turns ON DELETE CASCADE
        )
        """,
    ),
)
"""`SCRIPTS[n]` upgrades the tables from version n to n + 1; version 0 is an empty file."""

SCHEMA_VERSION = len(SCRIPTS)
