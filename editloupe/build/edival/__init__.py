"""EdiVal-Bench's making: the objects of an image, then a chain of instructions about them, turn by turn."""
