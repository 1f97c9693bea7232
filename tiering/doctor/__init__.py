"""Checks an existing broker's and its topics' settings and says what they cost."""
