"""Build hook: a wheel carries the broker plug-in's jar, compiled from the source beside it."""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BrokerPluginBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the jar before the wheel's files are gathered (pyproject.toml lists it)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the jar, unless it is current or the install is editable (then on first use)."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from tiering.broker_plugin import build

            if not build.is_current(build.JAR):
                self.app.display_info("Compiling the broker plug-in")
                build.build_jar(build.kafka_jars())
        finally:
            sys.path.remove(self.root)
