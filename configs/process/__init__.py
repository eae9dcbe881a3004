"""What every process does first: environment, streams, signals, terminal, imports, opening files. Without torch."""
