"""The translator that every tool and `zeromt.load` use: a run, an ensemble of runs, or a run's export."""
