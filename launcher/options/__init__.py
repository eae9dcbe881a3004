"""The command-line arguments that commands share, checked as far as possible without reading the configuration."""
