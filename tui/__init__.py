"""The terminal application: draws and asks; the work is done in `backends`."""
