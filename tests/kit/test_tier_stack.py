"""Service and engine as supervised processes of one directory."""

from __future__ import annotations

import os
import signal
import stat
import urllib.request
from pathlib import Path

import pytest
from kit_processes import alive
from polling import eventually

from tiering.config import default_config
from tiering.errors import BadInput
from tiering.local.tier_stack import CONFIG_FILE, TierStack


def stack_in(directory: Path, **more: bool) -> TierStack:
    return TierStack(default_config(directory), directory, with_engine=False, **more)


def is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v1/health", timeout=5) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_killed_service_comes_back_where_the_broker_looks_for_it(tmp_path: Path) -> None:
    with stack_in(tmp_path) as stack:
        assert is_healthy(stack.service_url)
        service = stack.service
        assert service is not None
        first = service.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)

        def is_back() -> bool:
            stack.tend()
            return service.pid not in (None, first) and is_healthy(stack.service_url)

        eventually(is_back, 60)
        second = service.pid
    assert second is not None
    assert not alive(second)


def test_token_and_configuration_are_for_their_owner_only(tmp_path: Path) -> None:
    with stack_in(tmp_path) as stack:
        token = stack.token_file.read_text()
        for path in (stack.token_file, tmp_path / CONFIG_FILE):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert token.strip() not in str(stack.describe())
    with stack_in(tmp_path) as stack:
        assert stack.token_file.read_text() == token


def test_a_directory_has_one_tier_at_a_time(tmp_path: Path) -> None:
    with stack_in(tmp_path), pytest.raises(BadInput, match="in use"):
        stack_in(tmp_path).start()
    stack_in(tmp_path).start().stop()  # and is free afterwards


def test_settings_that_can_t_work_are_told_with_the_service_s_words(tmp_path: Path) -> None:
    config = default_config(tmp_path, store="ftp://somewhere")
    with pytest.raises(BadInput, match="ftp"):
        TierStack(config, tmp_path, with_engine=False).start()


def test_secrets_of_the_catalog_aren_t_described(tmp_path: Path) -> None:
    from dataclasses import replace

    config = default_config(tmp_path)
    catalog = {**config.catalog, "s3.secret-access-key": "hush", "s3.region": "here"}
    described = TierStack(replace(config, catalog=catalog), tmp_path).describe()
    assert described["catalog"]["s3.region"] == "here"
    assert "hush" not in str(described)
