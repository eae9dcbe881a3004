"""The raw corpus, in any of its formats: text, TSV, JSON lines, TMX, Parquet, Hugging Face's datasets."""
