"""What every measurement shares: processes, memory, stolen time, text, tables."""
