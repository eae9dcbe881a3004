"""Optimizers, each a component; to add one, add a file here or a plugin. torch is imported only to build one."""
