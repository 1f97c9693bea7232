"""What the service answers when it doesn't do what was asked."""

from __future__ import annotations

from collections.abc import Mapping

from segment_reader import SegmentReaderError
from tiering.errors import BadInput, NotFound, TieringError, TransientError
from tiering.service.upload_body import DigestMismatch

__all__ = ["Refusal", "refusal_for"]


class Refusal(Exception):
    """An answer other than success: `status` and headers of HTTP, `code` for the plug-in."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


def refusal_for(error: Exception) -> Refusal:
    """The answer to an error that came up while a request was served."""
    match error:
        case Refusal():
            return error
        case DigestMismatch():
            return Refusal(422, "digest_mismatch", str(error))
        case BadInput():
            return Refusal(400, "bad_request", str(error))
        case NotFound():
            return Refusal(404, "segment_not_found", str(error))
        case TransientError():
            return Refusal(503, "store_unavailable", str(error), {"Retry-After": "1"})
        case SegmentReaderError():
            return Refusal(500, "corrupt_segment", str(error))
        case TieringError():
            return Refusal(500, "failed", str(error))
        case _:
            return Refusal(500, "internal", "the service failed; its log says why")
