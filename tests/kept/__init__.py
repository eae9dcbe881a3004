"""Datasets and runs that earlier versions made, and that are read for ever."""

from pathlib import Path

BBB3253 = Path(__file__).parent / "bbb3253"
