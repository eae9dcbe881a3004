"""A run's records of every start and every update, by which updates can be found again. Imports no torch."""
