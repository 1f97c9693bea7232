"""The demonstration: real topics, tiered, and read back in three ways that must agree."""

from tiering.demo.run import DemoOptions, run_demo

__all__ = ["DemoOptions", "run_demo"]
