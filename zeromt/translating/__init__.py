"""`zeromt translate`: lines, or a corpus in parts, by a run, an ensemble or an export, in one process or several."""
