"""What must not change unseen: numbers, questions as they are sent, and a run of version 0.2.0.

`python -m tests.guards --write` makes the frozen files anew, which takes minutes; read their difference like any other.
"""
