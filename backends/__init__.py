"""All the work of mdk-tui, without a screen: everything here can be used from Python or the command line."""
