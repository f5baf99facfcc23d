"""The commands, one per module, each a click command called `command`. Other modules hold what several of them share."""
