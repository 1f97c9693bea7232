"""Everything that knows Spark: sessions, the conversion job, the engine's process."""
