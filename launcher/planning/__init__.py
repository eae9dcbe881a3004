"""`zeromt plan`: what a run will take in memory, time and money, from its configuration alone. Imports no torch."""
