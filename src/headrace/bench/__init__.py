"""Workloads for measuring Headrace."""
