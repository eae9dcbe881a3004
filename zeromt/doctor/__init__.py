"""`zeromt doctor`: finds what on this machine would fail a run, slow it down or make its results wrong."""
