"""The registry that is started for tests and demos leaves nothing behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import requests

from tiering.errors import FatalError, TransientError
from tiering.local import schema_registry as module
from tiering.local.schema_registry import LocalSchemaRegistry


def test_it_listens_on_loopback_and_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with LocalSchemaRegistry() as registry:
        assert registry.url.startswith("http://127.0.0.1:")
        assert requests.get(f"{registry.url}/subjects", timeout=10).json() == []
        pid = registry.pid
        assert pid is not None
        assert len(list(tmp_path.iterdir())) == 1
        with pytest.raises(FatalError, match="runs already"):
            registry.start()
        assert registry.pid == pid
    assert registry.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(tmp_path.iterdir()) == []
    registry.stop()


def test_one_that_can_t_start_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module, "_JVM", ("-XX:+NoSuchOption",))
    with pytest.raises(TransientError, match="NoSuchOption"):
        LocalSchemaRegistry().start()
    assert list(tmp_path.iterdir()) == []
