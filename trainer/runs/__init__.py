"""A run's folder as a contract: its files, status, locks, ledger, signals and failures.

Imports no torch. Of `trainer`, `launcher` imports this package alone.
"""
