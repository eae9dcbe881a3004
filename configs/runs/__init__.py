"""The YAML files of runs that are shipped."""
