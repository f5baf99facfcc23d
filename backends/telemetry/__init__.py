"""Readings of GPUs and hosts."""
