"""The raw corpus: text files, TSV, JSON lines, or datasets of Hugging Face."""
