"""`headrace bench prefetch`: state ahead of its rows, against caches and asynchronous reads."""
