"""The layers beyond the rules: build the pool, ask an engine."""

from __future__ import annotations

import argparse

from kvtui.core.evaluate import Report


def add_layer_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that ask for the pool check and the engine's own verdict."""
    parser.add_argument("--pool", action="store_true", help="build the pool for real")


def ask_layers(args: argparse.Namespace, report: Report) -> tuple[Report, bool]:
    """(report with the asked layers' facts, whether a probe broke)."""
    return report, False
