"""Measures of every edit of a data set or a run. No model is asked."""
