"""`zeromt launch slurm`: renders batch scripts from templates, submits them, and makes a job's own decisions."""
