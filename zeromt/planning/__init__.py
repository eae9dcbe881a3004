"""`zeromt plan`: estimates a run's memory, time and cost from its configuration alone, without torch."""
