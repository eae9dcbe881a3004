"""Formats of raw text, each a component that yields the pairs of a file; to add one, add a file here or a plugin.

The modules are imported whenever a configuration is read, so slow imports (pyarrow) are inside the functions that need
them.
"""
