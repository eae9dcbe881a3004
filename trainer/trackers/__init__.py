"""Trackers of runs, each a component. To add one, add a file here or write a plugin.

A tracker's file may import torch only inside functions.
"""
