"""`headrace bench shared`: state on shared storage."""
