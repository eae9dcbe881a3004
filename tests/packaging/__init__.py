"""What is installed, and how it is found."""
