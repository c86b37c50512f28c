"""The tests of pocket trace each network once and run in one thread, as those of the export do."""

from tracing import one_thread, traced_once, traces  # noqa: F401  fixtures
