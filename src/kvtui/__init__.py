"""kvtui: set up, judge and export SGLang launches before any weights are loaded."""

__version__ = "0.1.0"
