"""Schedules of the learning rate, each a component; another is one more file here, or a plugin. Without torch."""
