"""A name of before, for batch scripts that wait in a queue: they call `launcher.slurm.decide`."""
