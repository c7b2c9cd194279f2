"""Runs: what is asked (spec), where it lies (store), how it is carried out (run), how it goes on (replay)."""
