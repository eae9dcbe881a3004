"""Code that all benchmarks share: child processes, memory, stolen CPU time, text, tables, results."""
