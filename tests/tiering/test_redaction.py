"""Secrets stay out of texts."""

from __future__ import annotations

import pytest

from tiering.redaction import is_secret, redact


@pytest.mark.parametrize(
    "key",
    ["s3.secret-access-key", "s3.access-key-id", "s3.session-token", "token", "credential",
     "client.secret-access-key", "adls.account-key", "adls.sas-token.x", "gcs.oauth2.token",
     "auth", "header.Authorization", "password"],
)  # fmt: skip
def test_keys_of_secrets(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize(
    "key", ["uri", "warehouse", "type", "s3.endpoint", "s3.region", "s3.path-style-access"]
)
def test_keys_of_other_things(key: str) -> None:
    assert not is_secret(key)


def test_values_and_logins_are_taken_out() -> None:
    properties = {
        "token": "tok-12345",
        "credential": "client-id-7:client-secret-8",
        "uri": "postgresql://me:pa55@db/cat",
        "password": "true",
    }
    text = "sent tok-12345 and client-secret-8 to postgresql://me:pa55@db/cat: true"
    assert redact(text, properties) == "sent *** and *** to postgresql://***@db/cat: true"
