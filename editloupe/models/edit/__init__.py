"""Image editors: a command, an address or a package that edits an image by an instruction."""
