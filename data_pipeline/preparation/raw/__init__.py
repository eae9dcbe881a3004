"""A corpus as its owner has it: files of text, of JSON, of pairs, or datasets of Hugging Face."""
