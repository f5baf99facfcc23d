"""The screens, one a module, its stylesheet beside it; `X_view` and `X_words` are what screen X says, without drawing."""
