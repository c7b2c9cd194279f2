"""What other programs can call over a wire."""
