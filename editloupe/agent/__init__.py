"""The agent: the loop of DLEBench Eq. 2, which answers one question about one edit."""
