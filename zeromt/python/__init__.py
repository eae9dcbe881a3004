"""zeromt from Python: `prepare`, `train`, `export` and `load`, which call what the command line calls."""
