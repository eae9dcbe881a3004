"""Translates lines of text for `zeromt translate`, in one process or several."""
