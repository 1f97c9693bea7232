"""Proof before deletion: table and side file read back and compared with the native log."""
