"""Record values (and keys) written with a schema: payload bytes <-> typed Arrow columns.

Pure: no store, no network, no clock. A codec is made of one writer's schema; what its columns are
called and numbered in a table is not its concern.
"""
