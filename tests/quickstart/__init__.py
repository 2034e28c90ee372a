"""The quickstart as a new user does it: its own files and commands, in a fresh virtual environment."""
