"""GIE-Bench's making: edits of drawn types with a question each, and masks of what they are about."""
