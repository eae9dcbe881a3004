"""`zeromt launch kubernetes`: Indexed Jobs submitted by kubectl, the code that their pods run, and their outcome."""
