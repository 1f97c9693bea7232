"""What the plug-in says to each wrong setting, and that it opens no connection for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin_harness import Harness

URL = "http://127.0.0.1:1"  # nobody listens there: configuring must not need anybody


def refusal(jvm: Harness, url: str | None = URL, **settings: object) -> str:
    """The message of the ConfigException that these settings get."""
    outcome = jvm.configure(url, **settings)
    assert outcome.error == "ConfigException", outcome
    assert "secret-token" not in outcome.message
    return outcome.message


def test_good_settings_are_taken_without_a_network(jvm: Harness) -> None:
    outcome = jvm.configure(
        "https://tier.example:8443/onecopy/",
        connect_timeout_ms=1,
        copy_deadline_ms=2,
        progress_deadline_ms=3,
        fetch_deadline_ms=4,
        pull_bytes=1 << 20,
        keep_bytes=0,
        keep_ms=1,
        allow_plaintext="false",
    )
    assert outcome.error is None, outcome


@pytest.mark.parametrize(
    "url",
    [
        "tier:8090",
        "ftp://tier",
        "http://",
        "http://user:pass@127.0.0.1:1",
        "http://127.0.0.1:1/?a=b",
        "http://127.0.0.1:1/#x",
        "http://a b",
    ],
)
def test_bad_address(jvm: Harness, url: str) -> None:
    message = refusal(jvm, url)
    assert "rsm.config.onecopy.url" in message
    assert "pass" not in message


def test_missing_address(jvm: Harness) -> None:
    assert "rsm.config.onecopy.url is missing" in refusal(jvm, None)


def test_unknown_key_is_named_with_the_known_ones(jvm: Harness) -> None:
    message = refusal(jvm, pull_byte=1 << 20)
    assert "rsm.config.onecopy.pull.byte is not a setting" in message
    assert "onecopy.pull.bytes" in message


def test_keys_of_others_are_let_be(jvm: Harness) -> None:
    outcome = jvm.call("configure", f"onecopy.url={URL}", "onecopy.token=t", "other.key=x")
    assert outcome.error is None, outcome


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pull_bytes", (1 << 20) - 1),
        ("pull_bytes", (4 << 20) + 1),
        ("pull_bytes", "1MiB"),
        ("keep_bytes", -1),
        ("keep_bytes", (1 << 30) + 1),
        ("keep_ms", 0),
        ("connect_timeout_ms", 0),
        ("copy_deadline_ms", -5),
        ("progress_deadline_ms", "soon"),
        ("fetch_deadline_ms", 10**12),
        ("allow_plaintext", "yes"),
    ],
)
def test_bad_value_names_the_key(jvm: Harness, key: str, value: object) -> None:
    assert f"rsm.config.onecopy.{key.replace('_', '.')} " in refusal(jvm, URL, **{key: value})


def test_token_in_the_clear_only_to_loopback_or_when_allowed(jvm: Harness) -> None:
    message = refusal(jvm, "http://tier.example:8090")
    assert "rsm.config.onecopy.allow.plaintext=true" in message
    assert jvm.configure("http://tier.example:8090", allow_plaintext="true").error is None
    for loopback in ("localhost", "127.9.9.9", "[::1]"):
        assert jvm.configure(f"http://{loopback}:8090").error is None
    assert "unencrypted" in refusal(jvm, "http://127.0.0.1.example:8090")
    assert "unencrypted" in refusal(jvm, "http://localhost.example:8090")


def test_exactly_one_token(jvm: Harness, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert "both are" in refusal(jvm, token_file=file)
    assert "neither is" in refusal(jvm, token=None)
    assert jvm.configure(URL, token=None, token_file=file).error is None


@pytest.mark.parametrize("content", ["", "two words\n", "ein-schlüssel"])
def test_token_file_without_a_token(jvm: Harness, tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    assert "onecopy.token.file" in refusal(jvm, token=None, token_file=file)
    assert "onecopy.token.file" in refusal(jvm, token=None, token_file=tmp_path / "none")


def test_illegal_token_is_not_repeated(jvm: Harness) -> None:
    assert "onecopy.token" in refusal(jvm, token="secret-token with spaces")


def test_trust_file(jvm: Harness, tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("nothing here\n")
    assert "not https" in refusal(jvm, tls_trust=empty)
    assert "PEM" in refusal(jvm, "https://tier.example", tls_trust=empty)
    assert "can't read" in refusal(jvm, "https://tier.example", tls_trust=tmp_path / "none")


def test_no_thread_keeps_the_broker_alive(jvm: Harness) -> None:
    jvm.configure(URL)
    assert jvm.call("threads").message in {"", "DestroyJavaVM"}
