"""Linear Road: position reports of vehicles on expressways, and the queries LR2 and LR4 of MiSA."""
