"""Readings of GPUs and hosts: `collector` gives snapshots, `history` keeps them, `probe` is the isolated process."""
