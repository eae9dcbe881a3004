"""What every process of this project does first: its environment, streams and imports. Imports no torch."""
