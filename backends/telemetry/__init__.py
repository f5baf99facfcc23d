"""Readings of GPUs and hosts: `collector` makes snapshots, `history` stores them, `probe` is the isolated process."""
