"""UnicEdit's verification: did an edit change anything, and what was really done."""
