"""What a run keeps of every start and every update, so that they can be found again. Imports no torch."""
