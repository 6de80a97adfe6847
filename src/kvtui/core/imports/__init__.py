"""Launches found in what people have: commands, scripts, manifests, configurations, logs."""
