"""Screens, each imported when it is first opened."""
