"""Optimizers, each a component; another is one more file here, or a plugin. Without torch until one is built."""
