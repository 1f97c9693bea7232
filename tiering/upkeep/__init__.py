"""What is done to tables and store beside conversion: rows that go, and what is left over."""
