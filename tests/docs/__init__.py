"""The pages: their code blocks and the notebook run."""
