"""Iceberg side: the topic's table, its schema, its state and the commit protocol."""
