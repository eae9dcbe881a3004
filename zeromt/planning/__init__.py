"""`zeromt plan`: estimates a run's memory and time from its configuration alone."""
