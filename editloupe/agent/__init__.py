"""The agent: Eq. 2 of DLEBench as a LangGraph loop that answers one question about one edit."""
