"""`zeromt launch slurm`: renders batch scripts from templates, submits them, and decides whether a job is requeued."""
