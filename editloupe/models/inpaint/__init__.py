"""Inpainters: fill a part of an image anew, from what surrounds it or from words."""
