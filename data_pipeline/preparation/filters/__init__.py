"""Filters of training pairs, each a component; another is one more file here, or a plugin.

The modules are imported wherever a configuration is read: what takes time to import (numpy, regex) is imported by the
functions that need it.
"""
