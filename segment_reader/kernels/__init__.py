"""The compiled loops: everything that touches single records or bytes. numba, no Python objects.

Every kernel takes byte buffers as read-only uint8 arrays, never allocates, and reports faults as
codes with positions; the callers turn those into errors that name the segment.
"""
