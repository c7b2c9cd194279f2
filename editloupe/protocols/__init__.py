"""Protocols: one folder a paper. A protocol is bookkeeping: which questions, which rubric, how findings become scores."""
