"""Where writers' schemas come from: a registry with Confluent's API, and a topic's settings."""
