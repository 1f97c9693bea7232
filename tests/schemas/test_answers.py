"""A registry on its bad days: every fault is one error that says what to do, and no secret."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import logging
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from odd_registry import Answer, OddRegistry, breaking_off, run_odd_registry, saying

from tiering.config import RegistryConfig
from tiering.errors import BadInput, NotFound, TransientError
from tiering.pacing import Pacing
from tiering.schemas.answers import Credentials
from tiering.schemas.registry import SchemaRegistry
from tiering.values.codec import UnsupportedSchema
from tiering.values.stored_schema import SchemaFormat

AT_ONCE = Pacing(sleep=lambda _: None)
STRING = json.dumps({"schema": '"string"'})
LOGIN = {"ONECOPY_REGISTRY_USER": "tier", "ONECOPY_REGISTRY_PASSWORD": "s3cret:päss"}
TOKEN = {"ONECOPY_REGISTRY_TOKEN": "s3cret-token"}


class Clock:
    """Moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def asking(
    odd: OddRegistry,
    *,
    environment: dict[str, str] | None = None,
    timeout_ms: int = 5000,
    clock: Clock | None = None,
    ca_file: str = "",
) -> Iterator[SchemaRegistry]:
    """Our client on it."""
    registry = SchemaRegistry.from_config(
        RegistryConfig(url=odd.url + "/", timeout_ms=timeout_ms, ca_file=ca_file),
        environment=environment or {},
        pacing=AT_ONCE,
        clock=clock or time.monotonic,
    )
    try:
        yield registry
    finally:
        registry.close()


def test_an_older_registry_s_answer_is_an_avro_schema_without_references() -> None:
    with run_odd_registry(saying(200, STRING)) as odd, asking(odd) as ours:
        found = ours.by_id(7)
        assert (found.schema_id, found.format, found.references) == (7, SchemaFormat.AVRO, ())
        assert found.definition == '"string"'
        assert ours.by_id(7) is found
        assert odd.asked == [("/api/schemas/ids/7", "")]


@pytest.mark.parametrize("fault", [saying(500), saying(503, "busy"), saying(429), breaking_off])
def test_what_passes_is_tried_again(fault: Answer) -> None:
    with run_odd_registry(fault, fault, saying(200, STRING)) as odd, asking(odd) as ours:
        assert ours.by_id(7).definition == '"string"'
        assert len(odd.asked) == 3


@pytest.mark.parametrize(
    ("fault", "told", "tries"),
    [
        (saying(500, '{"error_code": 50001, "message": "no disk"}'), "500: no disk", 3),
        (breaking_off, "can't be reached: IncompleteRead", 3),
        (saying(401), "set ONECOPY_REGISTRY_USER and ONECOPY_REGISTRY_PASSWORD, or ONE", 1),
        (saying(403), "set ONECOPY_REGISTRY_USER", 1),
        (saying(404), "check registry.url", 1),
        (saying(404, '{"error_code": 404, "message": "HTTP 404"}'), "check registry.url", 1),
        (saying(404, '{"error_code": 0, "message": "no such path"}'), "check registry.url", 1),
        (saying(302, Location="http://elsewhere/"), "answers 302", 1),
        (saying(200, "<html>hello</html>"), "check registry.url", 1),
        (saying(200, "[]"), "an object", 1),
        (saying(200, "{}"), "lacks 'schema'", 1),
        (saying(200, '{"schema": 1}'), "lacks 'schema'", 1),
        (saying(200, '{"schema": "1", "references": 1}'), "lacks 'references'", 1),
        (saying(200, '{"schema": "1", "references": [{"name": "x"}]}'), "lacks 'subject'", 1),
        (saying(200, "[" * 100_000), "check registry.url", 1),
        (saying(200, " " * (16 * 1024 * 1024 + 1)), "over 16777216 bytes", 1),
    ],
)
def test_what_doesn_t_pass_makes_the_topic_wait_and_says_why(
    fault: Answer, told: str, tries: int
) -> None:
    with run_odd_registry(fault) as odd, asking(odd) as ours:
        with pytest.raises(TransientError) as caught:
            ours.by_id(7)
        assert told in str(caught.value)
        assert len(odd.asked) == tries
        if "lacks" not in told and told != "an object":
            assert odd.url in str(caught.value)


@pytest.mark.parametrize("way", ["silent", "trickling"])
def test_a_slow_registry_is_given_up_within_the_time_set(way: str) -> None:
    with run_odd_registry() as odd:
        odd.answers.append(getattr(odd, way))
        started = time.monotonic()
        with (
            asking(odd, timeout_ms=300) as ours,
            pytest.raises(TransientError, match="no answer within 300 ms"),
        ):
            ours.by_id(7)
        assert time.monotonic() - started < 5
        assert len(odd.asked) == 1


def test_while_nobody_answers_others_needn_t_wait_for_it() -> None:
    clock = Clock()
    with run_odd_registry(breaking_off) as odd, asking(odd, clock=clock) as ours:
        for schema_id in (7, 8, 9):
            with pytest.raises(TransientError, match="can't be reached"):
                ours.by_id(schema_id)
        assert len(odd.asked) == 3
        odd.answers[:] = [saying(200, STRING)]
        clock.now += 3
        assert ours.by_id(8).schema_id == 8


def test_an_unknown_id_is_asked_for_again_but_not_at_once() -> None:
    clock = Clock()
    unknown = saying(404, '{"error_code": 40403, "message": "Schema 7 not found"}')
    with run_odd_registry(unknown) as odd, asking(odd, clock=clock) as ours:
        for _ in range(3):
            with pytest.raises(NotFound, match=r"schema id 7.*Schema 7 not found"):
                ours.by_id(7)
        assert len(odd.asked) == 1
        odd.answers[:] = [saying(200, STRING)]
        clock.now += 6
        assert ours.by_id(7).definition == '"string"'
        assert len(odd.asked) == 2


def test_a_kind_that_nobody_here_knows_gives_no_columns() -> None:
    text = json.dumps({"schemaType": "XML", "schema": "<x/>"})
    with run_odd_registry(saying(200, text)) as odd, asking(odd) as ours:
        for _ in range(2):
            with pytest.raises(UnsupportedSchema, match="unknown kind 'XML'"):
                ours.by_id(7)
        assert len(odd.asked) == 1


def test_a_reference_to_itself_or_to_nothing_ends() -> None:
    circle = json.dumps(
        {"schema": "{}", "references": [{"name": "a", "subject": "s", "version": 1}]}
    )
    with run_odd_registry(saying(200, circle)) as odd, asking(odd) as ours:
        with pytest.raises(UnsupportedSchema, match="refers to itself"):
            ours.by_id(7)
        assert odd.asked[1:] == [("/api/subjects/s/versions/1?deleted=true", "")]
    gone = saying(404, '{"error_code": 40402, "message": "Version not found"}')
    with (
        run_odd_registry(saying(200, circle), gone) as odd,
        asking(odd) as ours,
        pytest.raises(TransientError, match="schema id 7 refers to what isn't there"),
    ):
        ours.by_id(7)


def test_endless_references_end() -> None:
    def deeper(number: int) -> Answer:
        reference = {"name": f"n{number}", "subject": "s", "version": number}
        return saying(200, json.dumps({"schema": "{}", "references": [reference]}))

    with (
        run_odd_registry(*map(deeper, range(500))) as odd,
        asking(odd) as ours,
        pytest.raises(UnsupportedSchema, match="over 400 references"),
    ):
        ours.by_id(7)


@pytest.mark.parametrize(
    ("environment", "header"),
    [
        ({}, ""),
        (LOGIN, "Basic " + base64.b64encode("tier:s3cret:päss".encode()).decode()),
        (TOKEN, "Bearer s3cret-token"),
        ({**LOGIN, **TOKEN}, "Bearer s3cret-token"),
    ],
)
def test_credentials_are_sent_and_shown_nowhere(
    environment: dict[str, str],
    header: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Nor is a login of ~/.netrc sent, which belongs to other programs."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    caplog.set_level(logging.DEBUG)
    answers = [
        saying(401, json.dumps({"error_code": 401, "message": f"{header} is wrong"})),
        saying(500, json.dumps({"error_code": 500, "message": f"{header} is wrong"})),
    ]
    with run_odd_registry(*answers) as odd, asking(odd, environment=environment) as ours:
        for _ in answers:
            with pytest.raises(TransientError) as caught:
                ours.by_id(7)
            shown = f"{caught.value!r} {caught.value} {ours!r} {vars(ours)} {caplog.text}"
            for secret in (header.partition(" ")[2], *environment.values()):
                assert secret in ("", "tier") or secret not in shown
        assert {authorization for _, authorization in odd.asked} == {header}
    shown = repr(Credentials.from_environment(RegistryConfig(), environment))
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    "environment",
    [
        {"ONECOPY_REGISTRY_USER": "tier"},
        {"ONECOPY_REGISTRY_PASSWORD": "s3cret"},
        {"ONECOPY_REGISTRY_USER": "ti:er", "ONECOPY_REGISTRY_PASSWORD": "s3cret"},
        {"ONECOPY_REGISTRY_TOKEN": "s3cret\nX-Other: 1"},
        {"ONECOPY_REGISTRY_TOKEN": "s3cret-é"},
    ],
)
def test_half_a_login_is_refused_before_anything_is_asked(environment: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="ONECOPY_REGISTRY_") as caught:
        Credentials.from_environment(RegistryConfig(url="http://r"), environment)
    assert "s3cret" not in str(caught.value)


def test_other_variables_can_be_named() -> None:
    config = RegistryConfig(url="http://r", token_variable="MY_TOKEN")
    assert Credentials.from_environment(config, {"MY_TOKEN": "x1"}).header == "Bearer x1"
    assert Credentials.from_environment(config, TOKEN).header == ""


def test_only_a_certificate_of_the_ca_file_is_trusted(tmp_path: Path) -> None:
    ours_ca, other_ca = certificate(tmp_path / "a"), certificate(tmp_path / "b")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours_ca, ours_ca.with_suffix(".key"))
    with run_odd_registry(saying(200, STRING), tls=context) as odd:
        with asking(odd, ca_file=str(ours_ca)) as ours:
            assert ours.by_id(7).definition == '"string"'
        for wrong in (str(other_ca), ""):
            with (
                asking(odd, ca_file=wrong) as ours,
                pytest.raises(TransientError, match="certificate verify failed"),
            ):
                ours.by_id(7)
    with pytest.raises(BadInput, match=r"registry\.ca_file: .*no such file"):
        SchemaRegistry.from_config(
            RegistryConfig(url="https://r", ca_file=str(tmp_path / "none")), environment={}
        )


def certificate(place: Path) -> Path:
    """A new one for 127.0.0.1, signed by itself; its key lies beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = place.with_suffix(".pem")
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem.with_suffix(".key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return pem
