"""People answer the questions of a judge, in a browser: one page a question, one key a label."""
