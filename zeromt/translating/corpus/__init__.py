"""A corpus translated in parts, on any number of machines: every line bound to its source, killed at any moment"""
