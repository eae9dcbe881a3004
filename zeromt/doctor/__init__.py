"""`zeromt doctor`: finds what on this machine would fail a run or make its results wrong."""
