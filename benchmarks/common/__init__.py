"""Code that all benchmarks share: child processes, memory, text, tables, results."""
