"""Cluster monitoring: task events of a data centre, and the queries CM1 and CM2 of MiSA."""
