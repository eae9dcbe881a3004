"""Modifiers of training pairs, each a component of `stream.augment`; another is one more file here, or a plugin.

The modules are imported wherever a configuration is read: what takes time to import is imported by the functions that
need it.
"""
