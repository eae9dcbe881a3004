"""`zeromt compare`: the results of runs side by side.

Start reading at `command.py`. `comparison.py` gathers the data, `tables.py` puts them into tables, and `page/` makes
one HTML file of these.
"""
