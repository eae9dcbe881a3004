"""What keeps a run honest from outside: signals, watchdog, lock, ledger, status."""
