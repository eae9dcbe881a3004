"""Machines that share a file system, reached by ssh."""
