"""`zeromt launch slurm`: batch scripts from templates, submitted; and what a job decides for itself."""
