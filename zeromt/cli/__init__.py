"""The command line: what its words mean, its help, its exit codes, and the commands of the core."""
