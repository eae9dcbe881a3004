"""`zeromt translate`: a file, or what comes on stdin, in one process or several."""
