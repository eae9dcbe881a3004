"""The YAML files of shipped runs."""
