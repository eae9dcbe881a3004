"""What runs other programs: Eole, JoeyNMT, Transformers."""
