"""Queries that a claim answers."""


def get_device_sm():
    return 0
