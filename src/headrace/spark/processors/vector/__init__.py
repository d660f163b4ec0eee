"""Vectorised processors: functions over the rows and the state rows of many keys."""
