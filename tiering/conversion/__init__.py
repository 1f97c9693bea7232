"""Native segment -> data files: what a conversion worker does, without Spark."""
