"""Filters of training pairs, each a component; to add one, add a file here or a plugin.

The modules are imported whenever a configuration is read, so slow imports (numpy, regex) are inside the functions that
need them.
"""
