"""The part of Onecopy that runs inside the Kafka broker: Java source, and the jar made from it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PLUGIN_CLASS", "jar_path"]

#: What `remote.log.storage.manager.class.name` is set to.
PLUGIN_CLASS = "io.onecopy.OnecopyRemoteStorageManager"


def jar_path() -> Path:
    """Return the plug-in's jar; build it first when it is missing or older than its source.

    Raises PluginBuildError if it has to be built and can't be (no JDK, no Kafka jars).
    """
    # Here and not above: `python -m` would find its own module imported already.
    from tiering.broker_plugin import build

    if not build.is_current(build.JAR):
        build.build_jar(build.kafka_jars())
    return build.JAR
