"""Runs: what is asked (spec), where it lies (store), how it is carried out (execute), how it goes on (replay)."""
