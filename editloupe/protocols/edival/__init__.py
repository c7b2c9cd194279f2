"""EdiVal: chains of edits on objects, judged by detections, an LMM and features. The folder holds all of it."""
