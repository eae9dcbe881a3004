"""One machine's part of a job: torchrun's agent, its ranks, their restarts, and the agents of other machines."""
