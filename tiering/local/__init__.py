"""Real processes on this machine: a local Kafka, children and their supervisor, a whole tier."""
