"""From a YAML file and settings to one tree of plain values."""
