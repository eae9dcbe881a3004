"""The raw corpus in units and spans, whatever its format; text files as lines."""
