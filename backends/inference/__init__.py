"""The text server and its clients."""
