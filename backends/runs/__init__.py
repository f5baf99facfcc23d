"""Runs on disk: their plan, their folder, their state, their checkpoints."""
