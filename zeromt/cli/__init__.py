"""The command line: how its arguments are read, its help, its exit codes, and the commands of the core."""
