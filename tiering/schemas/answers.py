"""A schema registry's answers over HTTP: JSON within bounds of time and size, or one error."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Self

import requests
from requests.auth import AuthBase
from requests.exceptions import InvalidSchema, InvalidURL, RequestException, Timeout
from urllib3.exceptions import HTTPError, ReadTimeoutError

from tiering.config import RegistryConfig
from tiering.errors import BadInput, NotFound, TransientError
from tiering.pacing import SYSTEM_PACING, Pacing

__all__ = ["Credentials", "RegistryHttp"]

_TRIES: Final = 3
_OUTAGE_S: Final = 2.0
"""After a try that found nobody there, further questions aren't asked for so long: else a registry
that doesn't answer would hold up each topic for its whole timeout."""

_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_QUOTED_MAX: Final = 200
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class _OverloadedError(TransientError):
    """Worth another try at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What goes into the Authorization header; nothing shows it."""

    header: str = field(default="", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def from_environment(cls, config: RegistryConfig, environment: Mapping[str, str]) -> Self:
        """Of the variables that the configuration names; BadInput for half a login."""
        token = environment.get(config.token_variable, "").strip()
        if token:
            if not (token.isascii() and token.isprintable()):
                raise BadInput(f"{config.token_variable}: holds no bearer token (printable ASCII)")
            return cls(header=f"Bearer {token}", secrets=(token,))
        user = environment.get(config.user_variable, "")
        password = environment.get(config.password_variable, "")
        if bool(user) != bool(password) or ":" in user:
            raise BadInput(
                f"{config.user_variable} and {config.password_variable}: set both or neither; the "
                "user's name has no colon"
            )
        if not user:
            return cls()
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        return cls(header=f"Basic {login}", secrets=(login, password))

    @property
    def kind(self) -> Literal["token", "login", "none"]:
        """What they are."""
        if not self.header:
            return "none"
        return "token" if self.header.startswith("Bearer ") else "login"

    def hide(self, text: str) -> str:
        """`text` without them."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


class _HeaderAuth(AuthBase):
    """Sets the header; also keeps requests from taking a login out of ~/.netrc."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._credentials.header:
            request.headers["Authorization"] = self._credentials.header
        return request


class RegistryHttp:
    """Asks one registry. Safe for several threads."""

    def __init__(
        self,
        config: RegistryConfig,
        credentials: Credentials,
        *,
        pacing: Pacing = SYSTEM_PACING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Asks nothing yet. BadInput for a `ca_file` that isn't there."""
        if config.ca_file and not Path(config.ca_file).is_file():
            raise BadInput(f"registry.ca_file: {config.ca_file}: no such file")
        self.url = config.url.rstrip("/")
        self._config = config
        self._credentials = credentials
        self._pacing = pacing
        self._clock = clock
        self._session = requests.Session()
        self._session.auth = _HeaderAuth(credentials)
        self._outage: tuple[float, str] | None = None  # until when, and what it was

    def get(self, path: str, **parameters: str) -> object:
        """What it answers, decoded.

        Args:
            path: behind the registry's URL; starts with a slash, quoted.
            parameters: the query.

        Raises NotFound when the registry says that it doesn't have it, TransientError for
        everything else that may pass or can be mended there.
        """
        if self._outage is not None and self._clock() < self._outage[0]:
            raise TransientError(self._outage[1])
        for attempt in range(1, _TRIES):
            try:
                return self._asked(path, parameters)
            except _OverloadedError:
                self._pacing.pause(attempt)
        return self._asked(path, parameters)

    def close(self) -> None:
        """Close its connections; a further question opens others."""
        self._session.close()

    def _asked(self, path: str, parameters: Mapping[str, str]) -> object:
        seconds = self._config.timeout_ms / 1000
        try:
            with self._session.get(
                self.url + path,
                params=parameters,
                headers={"Accept": _ACCEPT},
                timeout=(seconds, seconds),
                verify=self._config.ca_file or True,
                allow_redirects=False,
                stream=True,
            ) as response:
                body = self._body(response, self._clock() + seconds)
        except (InvalidURL, InvalidSchema) as error:
            raise BadInput(self._told(f"can't be asked: registry.url: {error}")) from None
        except (Timeout, ReadTimeoutError):
            told = self._told(f"no answer within {self._config.timeout_ms} ms")
            self._outage = (self._clock() + _OUTAGE_S, told)
            raise TransientError(told) from None
        except (RequestException, HTTPError, OSError) as error:
            told = self._told(f"can't be reached: {_cause(error)}")
            self._outage = (self._clock() + _OUTAGE_S, told)
            raise _OverloadedError(told) from None
        self._outage = None
        return self._judged(response, body)

    def _body(self, response: requests.Response, until: float) -> bytes:
        body = bytearray()
        # read1 comes back with what is there, so a slow trickle is noticed.
        while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=True):
            body += chunk
            if len(body) > _ANSWER_BYTES_MAX:
                raise TransientError(self._told(f"answers with over {_ANSWER_BYTES_MAX} bytes"))
            if self._clock() > until:
                raise Timeout
        return bytes(body)

    def _judged(self, response: requests.Response, body: bytes) -> object:
        status = response.status_code
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if status == 200 and answer is not None:
            return answer
        said = self._quoted(answer)
        if status == 404 and _is_known_absent(answer):
            raise NotFound(self._told(f"doesn't have it{said}"))
        if status in (401, 403):
            raise TransientError(self._told(f"refuses ({status}{said}): {self._login_advice()}"))
        if status >= 500 or status == 429:
            raise _OverloadedError(self._told(f"fails ({status}{said})"))
        raise TransientError(
            self._told(
                f"answers {status}{said}, not as a schema registry does: check registry.url (with "
                "the path of its Confluent API, if it has one)"
            )
        )

    def _login_advice(self) -> str:
        named = self._config
        if not self._credentials.header:
            login = f"{named.user_variable} and {named.password_variable}"
            return f"set {login}, or {named.token_variable}"
        if self._credentials.header.startswith("Bearer"):
            return f"the token in {named.token_variable} isn't good for this"
        return f"the login in {named.user_variable} and {named.password_variable} isn't"

    def _quoted(self, answer: object) -> str:
        """What it says itself, if it does."""
        message = answer.get("message") if isinstance(answer, dict) else None
        return f": {message[:_QUOTED_MAX]}" if isinstance(message, str) and message else ""

    def _told(self, what: str) -> str:
        return self._credentials.hide(f"schema registry {self.url} {what}")


def _is_known_absent(answer: object) -> bool:
    """A registry's own word (40401 subject, 40402 version, 40403 schema), not that of a proxy or
    of a server without this API."""
    code = answer.get("error_code") if isinstance(answer, dict) else None
    return isinstance(code, int) and code // 100 == 404


def _cause(error: BaseException) -> str:
    """What lies below the layers of libraries, in short."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return f"{type(error).__name__}: {error}"[:_QUOTED_MAX]
