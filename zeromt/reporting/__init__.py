"""`zeromt report`: the report of a run or a pipeline, made again from its files."""
