"""The pure core: its tables, its laws, and each road of doubt."""
