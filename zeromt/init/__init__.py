"""`zeromt init`: from files of parallel text to a configuration, with held-out sets and a reason for each line."""
