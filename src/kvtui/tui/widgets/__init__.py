"""Widgets: each takes values in and sends messages out, and knows no other widget."""
