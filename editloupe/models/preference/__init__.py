"""How much people would like an image: a model such as HPSv3, which answers from a process of its own."""
