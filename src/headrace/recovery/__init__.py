"""After a failure: compare logs, redo logged epochs, withdraw and replay a batch."""
