"""`zeromt compare` and `zeromt report`: what runs came to, beside one another.

Begin with `command.py`. `comparison.py` gathers, `tables.py` puts what was gathered into tables, and `page/` makes one
HTML file of them.
"""
