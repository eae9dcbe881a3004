"""Jobs on a real SLURM."""
