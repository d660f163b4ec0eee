"""The values of settings: how each is parsed."""
