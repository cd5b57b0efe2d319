"""What a failing database means, and how to mend it: database errors become `StoreError`.

SQLAlchemy's and the drivers' messages are long and name SQL; a person needs the store, the cause
and the next step, on one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError

from metaclaw_langgraph.errors import StoreError

__all__ = ["store_errors"]

_FIXES = (
    ("disk is full", "free some disk space"),
    ("no space left", "free some disk space"),
    ("disk quota", "free some disk space or raise the quota"),
    ("readonly database", "make the file and its folder writable"),
    ("read-only file system", "put METACLAW_HOME on a writable disk"),
    ("permission denied", "make the file and its folder writable"),
    ("unable to open database file", "check that its folder exists and is writable"),
    ("not a directory", "METACLAW_HOME must be a folder; a part of this path is a file"),
    ("file exists", "METACLAW_HOME must be a folder; a part of this path is a file"),
    ("could not be acquired", "another process is opening the ledger; end it or try again"),
    ("is locked", "another process has been writing for too long; end it or try again"),
    ("not a database", "this is not a ledger; name another file, or move this one away"),
    ("malformed", "the file is damaged; restore a copy, or move it away to start anew"),
    ("disk i/o error", "check the disk"),
    ("password authentication failed", "check the user and password in METACLAW_LEDGER_URL"),
    ("does not exist", "create the database, or check its name in METACLAW_LEDGER_URL"),
    ("failed to resolve", "check the host in METACLAW_LEDGER_URL"),
    ("connection refused", "start the server, or check METACLAW_LEDGER_URL"),
    ("connection", "check that the server runs and can be reached"),
    ("queuepool limit", "too many threads use the ledger at once"),
)


def _cause(error: BaseException) -> str:
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def _fix(cause: str) -> str:
    lowered = cause.lower()
    return next((fix for sign, fix in _FIXES if sign in lowered), "run `metaclaw doctor`")


@contextmanager
def store_errors(store: str, driver: type[BaseException] | None = None) -> Iterator[None]:
    """Turn what a database, its file or its driver raises into one line about `store`."""
    caught = (SQLAlchemyError, OSError) if driver is None else (SQLAlchemyError, OSError, driver)
    try:
        yield
    except caught as error:
        if isinstance(error, StatementError) and isinstance(error.orig, ValueError):
            # Not the database's fault: a value of the caller's was refused on the way to it.
            raise error.orig from None
        cause = _cause(error)
        raise StoreError(f"ledger {store}: {cause}: {_fix(cause)}") from error
