"""DICE's training data: pairs of similar photographs, inpainted photographs, and judged differences."""
