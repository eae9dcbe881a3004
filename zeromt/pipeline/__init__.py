"""`zeromt pipeline`: a graph of commands from raw text to a model; each runs only if its result would be new.

The recipe is one YAML file (recipe.py); what a step would be made of decides whether it runs (keys.py, digests.py); the
records are next to the results (records.py); driver.py runs steps here (local.py) or on SLURM (slurm.py).
"""
