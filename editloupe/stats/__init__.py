"""Statistics of scores: means with intervals, correlations, agreement. Plain functions of numbers."""
