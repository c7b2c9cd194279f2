"""Reports: what a run's findings say, as tables in a terminal, Markdown and JSON."""
