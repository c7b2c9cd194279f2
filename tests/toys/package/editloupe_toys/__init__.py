"""Small protocols and measures of another package, which know nothing of editloupe but its public modules."""
