"""UnicBench: four scores of 0 to 10 for an edit, in English and Chinese. The folder holds all of it."""
