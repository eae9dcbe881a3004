"""`zeromt compare`: one table of runs. Start reading at `command.py`."""
