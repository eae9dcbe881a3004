"""The names of what stands in a run's folder. Imports no torch."""

STUCK_FILE = "stuck.log"
"""The monitors' last words, for whoever started the run."""
