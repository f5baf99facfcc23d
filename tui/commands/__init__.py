"""The subcommands, one a module, each with its function `command`; `X_options` and `X_text` are what several of them share."""
