"""`zeromt report`: the report of a run, made again from its files."""
