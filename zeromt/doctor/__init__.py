"""`zeromt doctor`: checks this machine for anything that would break a run or falsify its results."""
