"""Measures: answers that are computed from pixels, without a model that talks."""
