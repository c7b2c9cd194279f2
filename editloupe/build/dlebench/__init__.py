"""DLEBench's making: small targets of images, an instruction for each, and a reference image edited in a crop."""
