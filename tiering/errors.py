"""The errors of the tier, split by what the caller does about them."""

from __future__ import annotations

__all__ = [
    "BadInput",
    "CommitConflict",
    "CommitOutcomeUnknown",
    "FatalError",
    "NotFound",
    "StoreConflict",
    "TieringError",
    "TransientError",
]


class TieringError(Exception):
    """Root of every error this package raises on purpose."""


class BadInput(TieringError):
    """A user's or a client's input can't be taken: says what, where and what to do. Exit code 2."""


class NotFound(TieringError):
    """The named object, segment or table does not exist (known for sure, never an outage)."""


class TransientError(TieringError):
    """A part outside (store, catalog, service, broker) failed for now: try again later."""


class StoreConflict(TieringError):
    """A conditional write found another version of the object: read it again, then decide."""


class CommitConflict(TieringError):
    """The table moved under the plan: plan again from its current state."""


class CommitOutcomeUnknown(TransientError):
    """The commit may or may not have landed: look at the table before anything else."""


class FatalError(TieringError):
    """Going on would be unsafe: stop this table or process and tell the operator."""
