"""Models by name: their shapes, their memory, their time."""
