"""Benchmarks: each a ratio against a rival or a limit that is measured in the same run."""
