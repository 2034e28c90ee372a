"""The runtime's own promises that need its insides to be reached."""
