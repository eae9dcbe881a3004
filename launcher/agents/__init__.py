"""A job on one machine: torchrun's agent, its ranks, its neighbours on other machines, its restarts."""
