"""Schedules of the learning rate, each a component; to add one, add a file here or a plugin. Without torch."""
