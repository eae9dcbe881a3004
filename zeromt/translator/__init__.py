"""What translates, for every tool and for Python: a run, an ensemble of runs, or a run's export, on lines and sets."""
