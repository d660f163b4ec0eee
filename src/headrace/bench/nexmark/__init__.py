"""`headrace bench nexmark`: every query of NEXMark."""
