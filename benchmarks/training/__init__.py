"""Benchmarks of training: speed compared with other programs and commits, scaling, memory, checkpoints, BLEU."""
