"""The tests: a folder with the name of one above tests it; the other folders are listed here."""
